"""One class for each group type: the state of a group, how each record changes the state, and which records the broker refuses."""
