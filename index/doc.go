// Package index has no code. Its folders are of two sorts.
//
// What the store and the filesystem need:
//
//	chunks     which segment holds which record: a bbolt file, derived from the segments
//	anchors    which stored tensor has which marks: a folder of its own, derived from the tensors
//	artifacts  identities of tensors that were computed, by manifest: in the same file
//	manifest   the extents of one file
//	document   encoding of small checked documents, which the other formats here are made of
//
// What is known of models:
//
//	runs          runs and steps in the tree, their metrics, the order of a series
//	lineage       which checkpoint came from which, and who first stored a tensor
//	ledger        the log that keeps lineage and models between starts
//	graph         architecture graphs and their encoding
//	graph/source  where a model's graph is read from, and the parsers
//	prefix        the catalogue of graphs: which stored model has the longest common prefix with a graph
package index
