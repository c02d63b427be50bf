package record

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
)

// The keys of which a remote has one each, and the beginnings of those that are listed.
const (
	FormatKey = "format"
	HintKey   = "hint"
	StateKey  = "gc/state"
	AgingKey  = "gc/aging"

	Heads  = "heads/"
	Epochs = "gc/e/"
	probes = "probe/"
)

// Class says what an object is that never changes.
type Class byte

// The classes.
const (
	ClassData  Class = 'd' // a segment of chunks and columns
	ClassMeta  Class = 'm' // a segment of everything else
	ClassTable Class = 't' // a table
	ClassShard Class = 'i' // a shard of the index
)

// Prefix is how the keys of a class begin.
func (c Class) Prefix() string { return string(rune(c)) + "/" }

// Key is the key of an object of the class.
func (c Class) Key(id ID) string {
	s := id.String()
	return c.Prefix() + s[:2] + "/" + s
}

// ParseObject undoes Class.Key. ok is false for every other key.
func ParseObject(key string) (c Class, id ID, ok bool) {
	i := strings.LastIndexByte(key, '/') + 1
	if len(key) != i+2*len(id) || !strings.ContainsRune("dmti", rune(key[0])) {
		return 0, ID{}, false
	}
	c = Class(key[0])
	_, err := hex.Decode(id[:], []byte(key[i:]))
	return c, id, err == nil && c.Key(id) == key
}

// HeadKey is the key of a writer's head.
func HeadKey(w Writer) string { return Heads + string(w) }

// ParseHead undoes HeadKey. ok is false for every other key.
func ParseHead(key string) (w Writer, ok bool) {
	name, ok := strings.CutPrefix(key, Heads)
	return Writer(name), ok && Writer(name).Check() == nil
}

// ProbeKey is the key that a writer's probes at a mount use.
func ProbeKey(w Writer) string { return probes + string(w) }

// EpochKey is the key of what an epoch, from 1 on, condemned.
func EpochKey(n uint32) string { return fmt.Sprintf("%s%08x", Epochs, n) }

// ParseEpoch undoes EpochKey. ok is false for every other key.
func ParseEpoch(key string) (n uint32, ok bool) {
	v, err := strconv.ParseUint(strings.TrimPrefix(key, Epochs), 16, 32)
	return uint32(v), err == nil && v > 0 && EpochKey(uint32(v)) == key
}
