"""The commands of `dpicl` that need the extra research; entry points of the group `dpicl.commands` name them."""
