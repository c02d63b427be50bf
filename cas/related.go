package cas

// Related names records with the help of which a chunk may be stored; zero hashes are none.
type Related struct {
	// Prev is what stood there in a version before.
	Prev Hash
	// Masters are numbers in single precision of which the chunk's may be the rounding, in one record or, one behind the other,
	// in two.
	Masters [2]Hash
}

// IsZero reports whether nothing is named.
func (r *Related) IsZero() bool { return r.Prev.IsZero() && r.Masters[0].IsZero() }
