package control

import (
	"fmt"
	"net/url"
	"strconv"
	"time"
)

func (o PruneOptions) query() url.Values {
	q := url.Values{"grace": {o.Grace.String()}, "max_unused": {share(o.MaxUnused)}}
	if o.DryRun {
		q.Set("dry_run", "1")
	}
	return q
}

// pruneOptions undoes query. Nothing is removed on a request that was not understood.
func pruneOptions(q url.Values) (o PruneOptions, err error) {
	if o.Grace, err = time.ParseDuration(q.Get("grace")); err != nil || o.Grace < 0 {
		return o, invalid("grace", q)
	}
	if o.MaxUnused, err = parseShare(q.Get("max_unused")); err != nil {
		return o, invalid("max_unused", q)
	}
	o.DryRun = q.Get("dry_run") == "1"
	return o, nil
}

func (o CompactOptions) query() url.Values {
	q := url.Values{}
	if o.DryRun {
		q.Set("dry_run", "1")
	}
	return q
}

func (o CheckOptions) query() url.Values {
	q := url.Values{}
	if o.ReadData {
		q.Set("read_data", "1")
		q.Set("subset", share(o.Subset))
	}
	return q
}

func checkOptions(q url.Values) (o CheckOptions, err error) {
	if q.Get("read_data") != "1" {
		return o, nil
	}
	o.ReadData = true
	if o.Subset, err = parseShare(q.Get("subset")); err != nil {
		return o, invalid("subset", q)
	}
	return o, nil
}

func share(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) }

func parseShare(s string) (float64, error) {
	f, err := strconv.ParseFloat(s, 64)
	if err == nil && !(f >= 0 && f <= 1) {
		err = strconv.ErrRange
	}
	return f, err
}

func invalid(name string, q url.Values) error {
	return &Error{Code: CodeInvalid, Message: fmt.Sprintf("%s %q makes no sense", name, q.Get(name)), Errno: "EINVAL"}
}
