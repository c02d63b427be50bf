package formats

// Bounded is a Parser whose memory a file's bytes decide.
type Bounded interface {
	Parser
	// Bound returns the parser that takes a file for none of its format rather than that it takes more than
	// so many bytes of memory for it. 0: no bound.
	Bound(memory int64) Parser
}
