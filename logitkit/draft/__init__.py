"""Drafts: tokens proposed ahead of the target model.

`batch` imports `draft.source`, so nothing that lies above `batch` is imported here.
"""

from logitkit.draft.source import Draft, DraftSource

__all__ = ["Draft", "DraftSource"]
