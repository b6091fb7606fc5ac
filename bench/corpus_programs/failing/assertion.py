"""Check the labels against the model."""

classes, outputs = 7, 5
assert classes == outputs, f"{classes} classes in the labels, {outputs} outputs of the model"
