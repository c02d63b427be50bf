// Package lineage knows which model came from which, and which model owns each tensor.
//
// # Models and parents
//
// Every commit of a checkpoint is a model of its own, named by its sequence number; a path that is written
// again is another model. A model has at most one parent, committed before it, so that models are a forest in
// which numbers rise from the roots. A merge has a primary parent, and the others in MergedFrom; those are no
// ancestors, but keep their records. Where the parent was learnt is kept (How), and shown: a parent that was
// only inferred is never shown as a fact.
//
// The chain of parents answers ancestor queries. Each model keeps its parent, its depth, and one jump pointer
// to an ancestor further up, whose distance follows the skew-binary numbers (Myers 1983): adding a model
// takes O(1) time, finding an ancestor or the most recent common one O(log depth).
//
// # Owners
//
// A tensor's owner is the model that first stored it: the parent's tensor keeps its owner if the child's maps
// to it (by what a transfer read for it, else by equal name) and type, shape and bytes are the same;
// otherwise the child owns it. Nothing else counts, no flag "frozen" and no equality with a model further up.
// Names of one storage have one owner: the earliest that any of them inherits. So owners are always the model
// itself or ancestors. They are kept for each tensor, expanded, in the order of the manifest's tensors, and
// as sums (Share) with the model.
//
// Two questions that sound alike differ: the most recent common ancestor (MRCA) is a matter of parents, the
// most recent common owner (MRCO) of tensors. When two children retrain all that P owned, their MRCA is P and
// their MRCO older than P, or none.
//
// # Retiring
//
// A retired model is a tombstone: its number, its parent and the time. It stays a valid answer, marked, for
// as long as it has a live descendant, or a live model was merged from it or a descendant of it, or it owns a
// tensor of a live model. Sweep then forgets it. Retiring touches no other model's record, and retiring again
// does nothing. A tombstone may be revived: one of a model that another machine told of, before it came here.
//
// # Records, version 1
//
// A number is an unsigned LEB128 varint of the fewest bytes, at most 2^63-1. There is one encoding of each
// record; a reader refuses every other. A model's record, kept under its number seq:
//
//	"CKN1"
//	flags         1 byte: bits 0 to 2 how the parent was learnt (0 none … 4 inferred, 5 reproduced), bit 3
//	              retired
//	parent        number: seq - parent; 0 without one
//	merged from   number n, then n times seq - model, in the order given
//	retired at    only with bit 3: i64 little-endian, ns since 1970
//	shares        number n, then n times, ascending by owner (a tombstone has none)
//	    owner     number: owner - the owner before (the first: owner)
//	    tensors   number, at least 1
//	    bytes     number
//
// The owners of its tensors:
//
//	"CKO1"
//	runs          number n, then n times, in the order of the tensors
//	    tensors   number, at least 1
//	    owner     number: seq - owner; another one than in the run before
package lineage
