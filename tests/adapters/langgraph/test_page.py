"""The programs of the how-to pages run."""

from pathlib import Path

import pytest

from tests.adapters.pages import check_page

pytest.importorskip("langchain", reason="langchain is not installed here: make adapters")

LANGCHAIN = """
from langchain.agents import create_agent
def get_weather(city: str) -> str:
    '''Get weather for a given city.'''
    return f"It's always sunny in {city}!"
agent = create_agent(
    model="openai:gpt-5.5",
    tools=[get_weather],
    system_prompt="You are a helpful assistant",
)
result = agent.invoke(
    {"messages": [{"role": "user", "content": "What's the weather in San Francisco?"}]}
)
print(result["messages"][-1].content_blocks)
"""

LANGGRAPH = """
from langgraph.graph import StateGraph, MessagesState, START, END
def mock_llm(state: MessagesState):
    return {"messages": [{"role": "ai", "content": "hello world"}]}
graph = StateGraph(MessagesState)
graph.add_node(mock_llm)
graph.add_edge(START, "mock_llm")
graph.add_edge("mock_llm", END)
graph = graph.compile()
graph.invoke({"messages": [{"role": "user", "content": "hi!"}]})
"""


@pytest.mark.parametrize(
    ("page", "hello_world"), [("langchain", LANGCHAIN), ("langgraph", LANGGRAPH)]
)
def test_the_page_runs_and_begins_with_a_short_program(
    tmp_path: Path, page: str, hello_world: str
) -> None:
    check_page(page, tmp_path, hello_world=hello_world)
