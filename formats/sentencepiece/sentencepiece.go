// Package sentencepiece reads the vocabulary of a SentencePiece model, as tokenizer.model has it.
//
// The file is a protobuf message ModelProto. Of it is read, by number:
//
//	1   message SentencePiece, one a piece, in the order of ids
//	      1   string   the piece
//	      2   float    its score; 0 if there is none
//	      3   enum     its type; 1 if there is none
//	2   message TrainerSpec
//	      35  bool     what no piece has is cut into bytes
//
// Types are 1 normal, 2 unknown, 3 control, 4 user-defined, 5 unused, 6 byte. Other fields say how text is
// cut into pieces, and are passed over.
//
// # What is refused
//
// What the library does not load either: a piece that is empty, not UTF-8 or there twice, and not exactly one
// of type unknown; and pieces of type byte where text is not cut into bytes, or not all 256 of them, <0x00>
// to <0xFF>, where it is. Also more than 4,194,304 pieces, and more than 64 MiB. A piece takes some 100
// bytes.
package sentencepiece

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"unicode/utf8"

	"ckptfs/formats/protowire"
)

// ErrInvalid says that a file is no SentencePiece model. The error that wraps it says why.
var ErrInvalid = errors.New("no SentencePiece model")

// Type is the type of a piece.
type Type int32

// The types.
const (
	Normal      Type = 1
	Unknown     Type = 2
	Control     Type = 3
	UserDefined Type = 4
	Unused      Type = 5
	Byte        Type = 6
)

// Piece is a piece of a vocabulary.
type Piece struct {
	Text  string
	Score float32
	Type  Type
}

const (
	maxSize   = 64 << 20
	maxPieces = 1 << 22
)

var isByte = regexp.MustCompile(`^<0x[0-9A-F]{2}>$`)

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrInvalid, fmt.Sprintf(format, args...))
}

// Parse reads the pieces of a model. Errors wrap ErrInvalid.
func Parse(file []byte) ([]Piece, error) {
	if len(file) > maxSize {
		return nil, invalid("it has %d bytes", len(file))
	}
	r := protowire.In(file)
	var pieces []Piece
	unknown, bytes, fallback := 0, 0, false
	seen := make(map[string]bool)
	err := r.Fields(r.All(), func(f protowire.Field) error {
		if f.Number == 2 {
			if f.Type != protowire.Bytes {
				return invalid("its TrainerSpec is no message")
			}
			return r.Message(f, func(f protowire.Field) error {
				if f.Number == 35 {
					fallback = f.Value != 0
				}
				return nil
			})
		}
		if f.Number != 1 {
			return nil
		}
		p, err := piece(r, f)
		if err != nil {
			return err
		}
		if p.Text == "" || !utf8.ValidString(p.Text) || seen[p.Text] || len(pieces) == maxPieces {
			return invalid("piece %d is empty, no text, or there twice", len(pieces))
		}
		switch p.Type {
		case Unknown:
			unknown++
		case Byte:
			if bytes++; !isByte.MatchString(p.Text) {
				return invalid("piece %d is no byte", len(pieces))
			}
		}
		seen[p.Text] = true
		pieces = append(pieces, p)
		return nil
	})
	switch {
	case errors.Is(err, protowire.ErrInvalid):
		return nil, invalid("%v", err)
	case err != nil:
		return nil, err
	case fallback && bytes != 256, !fallback && bytes > 0:
		return nil, invalid("it has %d bytes as pieces", bytes)
	case unknown != 1:
		return nil, invalid("%d pieces are of type unknown, and not one", unknown)
	}
	return pieces, nil
}

// piece reads one piece.
func piece(r *protowire.Reader, f protowire.Field) (Piece, error) {
	p := Piece{Type: Normal}
	if f.Type != protowire.Bytes {
		return p, invalid("a piece is no message")
	}
	err := r.Message(f, func(f protowire.Field) error {
		switch {
		case f.Number == 1 && f.Type == protowire.Bytes:
			b, err := r.Bytes(f.Span)
			p.Text = string(b)
			return err
		case f.Number == 2 && f.Type == protowire.Fixed32:
			p.Score = math.Float32frombits(uint32(f.Value))
		case f.Number == 3 && f.Type == protowire.Varint:
			if f.Value < uint64(Normal) || f.Value > uint64(Byte) {
				return invalid("a piece has the type %d", f.Value)
			}
			p.Type = Type(f.Value)
		case f.Number <= 3:
			return invalid("a piece's field %d is of another type", f.Number)
		}
		return nil
	})
	return p, err
}
