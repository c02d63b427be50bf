package llamacpp

import (
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// id is what a model's id, or a folder's name, says of it. A nil part is not said.
type id struct{ name, org, basename, finetune, version, size *string }

func some(s string) *string { return &s }

var (
	isVersion  = regexp.MustCompile(`^(?i:(v|iter)?[0-9]+([.][0-9]+)*)$`)
	isType     = regexp.MustCompile(`^(?i:i?q[0-9](_[0-9A-Za-z_])*|b?fp?(16|32))$`)
	isSize     = regexp.MustCompile(`^(?i:(([A]|[0-9]+[x])?[0-9]+([._][0-9]+)?[KMBT][0-9]?|small|mini|medium|large|x?xl))$`)
	isFinetune = regexp.MustCompile(`^(?i:chat|instruct|vision|lora)$`)
	notTitled  = regexp.MustCompile(`^(v[0-9]+(?:\.[0-9]+)*|[0-9].*)$`)
)

const letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

func digit(c byte) bool  { return c >= '0' && c <= '9' }
func letter(c byte) bool { return c|0x20 >= 'a' && c|0x20 <= 'z' }

// plain reports whether a text is printable ASCII: the rules for names are written for such here.
func plain(s string) bool {
	return strings.IndexFunc(s, func(r rune) bool { return r < ' ' || r > '~' }) < 0
}

// kinds of a part of a name. A part can be several.
const (
	asBasename = 1 << iota
	asSize
	asFinetune
	asVersion
	asType
)

// idOf takes an id apart, which is plain. total is how many numbers the model has.
func idOf(model string, total int64) id {
	if strings.Contains(model, " ") {
		return id{name: some(model)} // a sentence
	}
	var out id
	full := model
	if org, rest, ok := strings.Cut(model, "/"); ok {
		full = rest
		if !strings.HasPrefix(org, ".") {
			out.org = some(org)
		}
	}
	out.name = some(full)
	parts := slices.DeleteFunc(strings.Split(full, "-"), func(s string) bool { return s == "" })
	kinds := make([]int, len(parts))
	numbered := false // a size has a digit
	for i, p := range parts {
		switch {
		case isVersion.MatchString(p):
			kinds[i] = asVersion
		case isType.MatchString(p):
			kinds[i], parts[i] = asType, strings.ToUpper(p)
		case i > 0 && isSize.MatchString(p):
			parts[i], kinds[i] = size(p, total)
			numbered = numbered || kinds[i] == asSize && strings.ContainsAny(p, "0123456789")
		case i > 0 && isFinetune.MatchString(p):
			kinds[i] = asFinetune
		}
	}
	start := true
	for i, p := range parts {
		if numbered && kinds[i] == asSize && strings.Trim(p, letters) == "" {
			kinds[i] = 0 // a word, beside a number
		}
		switch {
		case start && (kinds[i] == 0 && letter(p[0]) || kinds[i] == asVersion):
			kinds[i] |= asBasename
		default:
			start = false
			if kinds[i] == 0 {
				kinds[i] = asFinetune
			}
		}
	}
	for i := len(kinds) - 1; i >= 0 && kinds[i]&asBasename != 0 && kinds[i] != asBasename; i-- {
		kinds[i] &^= asBasename
	}
	join := func(with, without int, once bool) *string {
		var of []string
		for i, p := range parts {
			if kinds[i]&with != 0 && kinds[i]&without == 0 && !(once && slices.Contains(of, p)) {
				of = append(of, p)
			}
		}
		if s := strings.Join(of, "-"); s != "" {
			return &s
		}
		return nil
	}
	out.basename = join(asBasename, 0, false)
	out.size = join(asSize, 0, true)
	out.finetune = join(asFinetune, 0, false)
	out.version = join(asVersion, asBasename, false)
	if out.size == nil && out.finetune == nil && out.version == nil {
		out.basename = nil
	}
	return out
}

// size is a part that looks like a size, as it is written, and what it is: the size of another model is none.
func size(p string, total int64) (string, int) {
	p = strings.ReplaceAll(p, "_", ".")
	if n := len(p); digit(p[n-1]) { // as in 7b1
		p = p[:n-2] + "." + p[n-1:] + p[n-2:n-1]
	}
	last := len(p) - 1
	if last > 0 && digit(p[last-1]) && strings.IndexByte("kmbt", p[last]) >= 0 {
		p = p[:last] + strings.ToUpper(p[last:])
	}
	if total != 0 {
		if x, err := strconv.ParseFloat(p[:last], 64); err == nil {
			x *= math.Pow(1000, float64(strings.IndexByte(" KMBT", p[last])))
			if math.Abs(x-float64(total)) > float64(7*total/8) {
				return p[:last] + strings.ToLower(p[last:]), asFinetune // it may be the length of a context
			}
		}
	}
	return p, asSize
}

// title is an id as a title.
func title(s string) string {
	words := strings.Fields(strings.ReplaceAll(s, "-", " "))
	for i, w := range words {
		if w != strings.ToLower(w) || !strings.ContainsAny(w, letters) || notTitled.MatchString(w) {
			continue
		}
		b := []byte(w)
		for k := range b {
			if letter(b[k]) && (k == 0 || !letter(b[k-1])) {
				b[k] &^= 0x20
			}
		}
		words[i] = string(b)
	}
	return strings.Join(words, " ")
}

// sizeLabel is how many numbers a model has, for people.
func sizeLabel(n numbers) string {
	if n.experts > 0 {
		return strconv.FormatInt(n.experts, 10) + "x" + rounded(n.active)
	}
	return rounded(n.total)
}

func rounded(total int64) string {
	x, unit := float64(total)*1e-3, "K"
	switch {
	case total > 1e12:
		x, unit = float64(total)*1e-12, "T"
	case total > 1e9:
		x, unit = float64(total)*1e-9, "B"
	case total > 1e6:
		x, unit = float64(total)*1e-6, "M"
	}
	digits := len(strings.TrimLeft(strconv.FormatFloat(math.RoundToEven(x), 'f', 0, 64), "0"))
	return strconv.FormatFloat(x, 'f', max(2-digits, 0), 64) + unit
}
