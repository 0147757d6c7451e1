"""What goes over the wire and into the log: requests and answers with their errors, records, and the expressions that requests carry."""
