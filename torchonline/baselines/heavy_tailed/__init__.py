"""Linear bandits for heavy-tailed rewards, from other papers."""
