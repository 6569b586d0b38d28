"""PS2Stream: Distributed Publish/Subscribe Query Processing on the Spatio-Textual Data Stream."""
