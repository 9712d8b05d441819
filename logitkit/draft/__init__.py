"""Drafts: tokens proposed ahead of the target model."""

from logitkit.draft.source import Draft

__all__ = ["Draft"]
