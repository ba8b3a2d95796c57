"""Public questions to a model, where engine and analyses meet: weights, maps, text, the experiment."""
