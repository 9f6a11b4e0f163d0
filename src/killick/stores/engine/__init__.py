"""Every write there is: the table of the engine's operations.

An operation is a function of the engine's state and what the caller gives it. It runs on the
writer's thread, inside a transaction:

    write(lambda engine: ops.stop(engine, key, body, at_us))

Rule 1: an operation decides first and writes afterwards. It refuses before its first write, so that
        a refusal leaves nothing behind for the others in its commit.
Rule 2: an operation decides on what it reads in its transaction, or on what was read in an earlier
        one if no other process has written since (`Transaction.version`).
Rule 3: the engine knows no clock and mints no ids; both come with the operation.
Rule 4: a repeated write changes nothing and says so in its receipt.
Rule 5: an operation that keeps something although it lost (a late text) returns the error instead
        of raising it, so that what it kept is committed; the face raises it afterwards.
"""

from killick.stores.engine import import_ops, limit_ops, session_ops, sum_ops, tool_ops, turn_ops

# A turn, its prompts and its messages.
start_turn = turn_ops.start_turn
append = turn_ops.append
begin_call = limit_ops.begin_call
flush = turn_ops.flush
end_message = turn_ops.end_message
stop = turn_ops.stop
end_turn = turn_ops.end_turn
interrupt_turn = turn_ops.interrupt_turn
recover = turn_ops.recover
add_late_text = turn_ops.add_late_text
queue = turn_ops.queue
steer = turn_ops.steer
take_steers = turn_ops.take_steers
withdraw = turn_ops.withdraw
take_work = turn_ops.take_work

# A tool call.
seal_call = tool_ops.seal_call
start_tool = tool_ops.start_tool
finish_tool = tool_ops.finish_tool
leave_tool = tool_ops.leave_tool
settle = tool_ops.settle
ask_approval = tool_ops.ask_approval
decide_approval = tool_ops.decide_approval

# A session as a whole, and its history.
create_session = session_ops.create_session
about = session_ops.about
compact = session_ops.compact
rewind = session_ops.rewind
undo = session_ops.undo
delete_session = session_ops.delete_session
erase = session_ops.erase
erase_rows = session_ops.erase_rows
scrubbed = session_ops.scrubbed
keep_rule = session_ops.keep_rule
rebuild = session_ops.rebuild
import_deltas = import_ops.import_deltas
import_entries = import_ops.import_entries
end_imported = import_ops.end_imported
add_messages = import_ops.add_messages

# Blobs and the search index.
put_blob = session_ops.put_blob
collect_blobs = session_ops.collect_blobs
index = session_ops.index
reset_index = session_ops.reset_index
index_is_damaged = session_ops.index_is_damaged

# The sums by day.
count_sessions = sum_ops.count_sessions
empty_sums = sum_ops.empty_sums
