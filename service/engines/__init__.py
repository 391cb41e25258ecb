"""The engines that answer: a protocol, and one folder for each kind."""
