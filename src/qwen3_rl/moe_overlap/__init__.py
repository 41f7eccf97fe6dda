"""Expert weights under MindSpeed's all-to-all overlap: where each number lies, and how it gets there and back."""
