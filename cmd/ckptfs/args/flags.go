package args

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/pflag"
)

// expected is what flags of pflag's own types take.
var expected = map[string]string{
	"int":      "a whole number, such as 3",
	"bool":     "true or false",
	"duration": "a time, such as 90s, 5m or 24h",
}

// Flag is the error of a flag that has a wrong value: which flag, the value, and what is expected. Of our own
// types the error says that.
func Flag(err error) error {
	var wrong *pflag.InvalidValueError
	if !errors.As(err, &wrong) {
		return err
	}
	f := wrong.GetFlag()
	wants := expected[f.Value.Type()]
	if wants == "" || !strings.HasPrefix(fmt.Sprintf("%T", f.Value), "*pflag.") {
		return fmt.Errorf("--%s: %w", f.Name, wrong.Unwrap())
	}
	return fmt.Errorf("--%s: %q is not %s", f.Name, wrong.GetValue(), wants)
}
