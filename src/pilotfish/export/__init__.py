"""Export: a run's trained weights as a Hugging Face folder, with a proof that training changed them.

from pilotfish.export import export_model
print(export_model(Path("runs/hint"), Path("hint-3b")).change)
"""

from pilotfish.export.main import Exported, export_model

__all__ = ["Exported", "export_model"]
