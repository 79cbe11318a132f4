"""The command line of each verb: options, help, and what it imports once it is called; the work is in `verbs`."""
