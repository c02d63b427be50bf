package cas

// Related names records with the help of which a chunk may be stored; zero hashes are none.
type Related struct {
	// Prev is what stood there in a version before. With Alike it is like the chunk, and no version of it as
	// far as is known; with Leads, too, versions of the chunk are to follow.
	Prev         Hash
	Alike, Leads bool
	// Masters are numbers in single precision of which the chunk's may be the rounding, in one record or, one
	// behind the other, in two.
	Masters [2]Hash
	// Recipe, if not nil, says how the chunk may be computed from others.
	Recipe *Recipe

	// XXH3 is that of the content itself, taken beside its hash; zero: it is taken when the chunk is stored.
	XXH3 XXH3
	// InFile says that the content lies in one piece in the file that is packed, at Off.
	InFile bool
	Off    int64
	// Base, if not nil, is the content of the record that a new version of Prev is stored against, as far as
	// the caller knows.
	Base []byte
	// Columns, if not nil, is what the difference from Prev may be predicted with (codec.EncodeLowRank), and
	// At the index in the tensor of the chunk's first element.
	Columns *Columns
	At      int64
}

// IsZero reports whether nothing is named.
func (r *Related) IsZero() bool { return r.Prev.IsZero() && r.Masters[0].IsZero() && r.Recipe == nil }

// Recipe is a program (package recipe) that may compute a chunk from the contents of others.
type Recipe struct {
	Bases   []Hash // each once, in order of first use
	Program []byte // without what it leaves to be told
}

// Columns is the factor that the chunks of a tensor have in common, whose difference from another is of low
// rank. It becomes a record when the first chunk is stored with its help.
type Columns struct {
	Hash Hash
	Raw  []byte // the record's content
	Cols int    // elements in a row of the tensor
}
