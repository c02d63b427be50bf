// Package prefix finds, among all stored models, the one whose architecture has the longest prefix in common
// with a new one: the best model to transfer weights from.
//
// # What is looked for
//
// A common prefix of a new graph G and a stored graph A is an injective map phi from vertices of G, of which
// each has its inputs among them, into A, such that configuration and commutativity agree and the inputs of
// phi(v) are phi of the inputs of v: in order, or in any order where they commute. Its length is the number
// of vertices mapped. The answer is the live model with the greatest (length, quality, seq), where a quality
// that is not known or NaN is below all others. Only graphs of one kind compete. Without a common root there
// is no answer.
//
// # Bound, then verify
//
// The *tree* of a vertex is what it is, with all that leads to it. The number of trees that G and A share, as
// bags, is never less than the longest prefix, and equal to it unless a shared tree occurs twice in G or in
// A. Such twins are the only freedom in phi; choosing among them is NP-hard, so it is branch and bound with a
// budget of nodes, and of what they look at: past it the answer is the best prefix found and Exact is false.
//
// In memory a tree is a key of 62 bits, made with a secret of the catalogue's own (hash.go). An architecture
// that has a layer has all layers before it. Keys that the same architectures have are one *class*, with one
// posting list. Classes are few: long runs of layers that branched nowhere yet. Inserting an architecture
// that has a part of a class splits the class.
//
//	class    its keys in a line, each behind one of its inputs where that can be; the architectures that have
//	         them, a list of four bytes each, or a bitmap where that is smaller; the champion among those: the
//	         best by (quality, seq)
//	dict     key → place in a line, 16 bytes, at most 4/5 full; only *entries*: keys whose predecessor in
//	         the line is none of their inputs
//	arch     the graph in two to five bytes a vertex, its classes, its models best first
//
// So a graph is followed along the lines, and looked up where one branches off.
//
// The layers that a new architecture has and none before it are one class, and most such classes are never
// shared. Such a class is *folded*: it has no line, and the dictionary has only those of its keys whose
// inputs other classes have. An architecture with any key of the class has one of these. The first insertion
// that meets one makes the line; a query that meets one reads the keys off the architecture.
//
// # A query
//
//  1. Hash G from the roots, no further than keys are known, and weigh each class by the keys of G in it.
//  2. The champion of the rarest class, and the latest architectures in some others, give a first length. If
//     the champion weighs all that is known of G, as it does for a chain, it is the answer.
//  3. The bitmaps say, of 128 architectures at once, which of them lack so little that they can still be
//     longer than the best (filter.go). Where classes with bitmaps weigh too little, the posting lists are
//     read shortest first, adding up weights, while the unread ones could still make up a winner (lists.go).
//  4. The architectures that are left are weighed in full.
//  5. With twins, weights are first taken for lengths, and the winner is verified: mostly its length is its
//     weight, and it is the answer. Else all that could win are verified, the heaviest first.
//  6. The map phi of the winner is read off the two graphs, without hashes: by the order of their vertices,
//     which a mutant mostly keeps (mapping.go), and where that maps fewer than the weight, by the trees.
//     Should two keys ever collide, its length shows it, and the query starts again, verifying everything.
//
// Retiring a model takes it from its architecture. An architecture without models stays as a tombstone until
// a quarter are tombstones; then postings, classes and keys that only those held are swept.
//
// The catalogue lives in memory, and is derived: the first query restores it from a snapshot (snapshot.go),
// or makes it from the records of graphs and models, in any order.
package prefix
