"""Sensitive spans stay at home; a noisy profile of them lets a model answer as if it had read them (PrivacyRestore)."""
