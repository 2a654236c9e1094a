"""Fast answers on a CPU: the graph, the engine, and files of answers."""
