package llamacpp

// bytePairs sets the pairs of a byte-level BPE.
func (c *converter) bytePairs() error {
	return refuse(filePieces, "it is not there, and other vocabularies are not converted here")
}
