// Package objects turns records of the local store into the objects of a remote.
package objects
