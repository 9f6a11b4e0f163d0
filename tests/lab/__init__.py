"""A laboratory: real agents, run against a model that follows a script.

`model.Model` is an HTTP server on loopback that answers as OpenAI (Chat Completions, Responses),
Anthropic (Messages) and Google (generateContent) do, streamed or not, and keeps every request that
it was sent. It needs no agent, so that other tests use it too:

    script = [
        Answer(Text("Let me look."), Call("shell", {"command": "ls"})),
        Answer(Text("Half of "), Gate("half"), Text("the answer.")),
        Answer(Fail(500, "out of order")),
    ]
    with Model(script) as model:
        client = OpenAI(base_url=f"{model.url}/v1", api_key="x")   # Anthropic, Gemini: model.url
        …
        model.wait("half")      # the model has sent "Half of " and stands at the gate
        model.open("half")      # it goes on; or kill the client, and look at what it kept
        model.requests[0].body  # byte for byte; .method .path .headers .json() .said()

Each request takes the next `Answer`; behind the last, the model says `END`. `wires.said` reads a
request of any wire as one list of `Said`, so that what an agent sent can be compared.
"""
