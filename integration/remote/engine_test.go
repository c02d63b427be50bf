// Package remote runs what speaks to object stores against a real one.
package remote

import (
	"fmt"
	"os"
	"testing"
	"time"

	"ckptfs/cas/remote/bucket"
	"ckptfs/cas/remote/bucket/suite"
	"ckptfs/cas/remote/probe"
	"ckptfs/cas/remote/s3"
	"ckptfs/integration/mounttest"
)

func TestMain(m *testing.M) { os.Exit(mounttest.Main(m)) }

func open(t *testing.T, e *mounttest.Engine, prefix string) *s3.Bucket {
	t.Helper()
	b, err := s3.Open(t.Context(), s3.Config{Bucket: e.Bucket, Prefix: prefix, Endpoint: e.Endpoint,
		PathStyle: true})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestEngine(t *testing.T) {
	e := mounttest.StartEngine(t)
	n := 0
	suite.Run(t, func(t *testing.T) bucket.Bucket {
		n++
		return open(t, e, fmt.Sprintf("suite-%d/", n))
	})
}

func TestEngineIsFit(t *testing.T) {
	e := mounttest.StartEngine(t)
	b := open(t, e, "probed/")
	begun := time.Now()
	report, err := probe.Run(t.Context(), probe.Options{Full: !testing.Short()}, b, open(t, e, "probed/"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range report.Checks {
		if c.Failed != "" {
			t.Errorf("%s: %s", c.Name, c.Failed)
		}
	}
	t.Logf("%d requests in %v", report.Requests, time.Since(begun))
	if err := probe.Conditions(t.Context(), b, "probe/here"); err != nil {
		t.Error(err)
	}
}
