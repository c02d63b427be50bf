package remote

import (
	"encoding/json"
	"fmt"
	"strings"
)

// Role is what somebody may do with a remote.
type Role string

// The roles, each with what the one before may.
const (
	Reader    Role = "reader"
	Writer    Role = "writer"
	Collector Role = "collector" // collects garbage
)

type statement struct {
	Sid       string         `json:"Sid"`
	Effect    string         `json:"Effect"`
	Principal string         `json:"Principal,omitempty"`
	Action    []string       `json:"Action"`
	Resource  []string       `json:"Resource"`
	Condition map[string]any `json:"Condition,omitempty"`
}

type policy struct {
	Version   string      `json:"Version"`
	Statement []statement `json:"Statement"`
}

func encode(s []statement) string {
	p, err := json.MarshalIndent(policy{"2012-10-17", s}, "", "  ")
	if err != nil {
		panic(err) // there is nothing in it that has no JSON
	}
	return string(p) + "\n"
}

func (a Address) arn(below ...string) (arns []string) {
	for _, b := range below {
		arns = append(arns, "arn:aws:s3:::"+a.Bucket+"/"+a.Prefix+b)
	}
	return arns
}

// Policy is the least that a role's credentials need to be allowed, as the policy of a user or a role of
// AWS.
func (a Address) Policy(r Role) (string, error) {
	s := []statement{
		{Sid: "Read", Effect: "Allow", Action: []string{"s3:GetObject"}, Resource: a.arn("*")},
		// Without it what is missing reads as what is forbidden.
		{Sid: "List", Effect: "Allow", Action: []string{"s3:ListBucket"},
			Resource:  []string{"arn:aws:s3:::" + a.Bucket},
			Condition: map[string]any{"StringLike": map[string]string{"s3:prefix": a.Prefix + "*"}}},
	}
	put := statement{Sid: "Write", Effect: "Allow", Action: []string{"s3:PutObject"}}
	switch r {
	case Reader:
	case Writer:
		put.Resource = a.arn("format", "heads/*", "d/*", "m/*", "t/*", "hint", "probe/*")
		s = append(s, put, statement{Sid: "CleanProbes", Effect: "Allow", Action: []string{"s3:DeleteObject"},
			Resource: a.arn("probe/*")})
	case Collector:
		put.Resource = a.arn("*")
		s = append(s, put, statement{Sid: "Delete", Effect: "Allow", Action: []string{"s3:DeleteObject"},
			Resource: a.arn("*")})
	default:
		return "", fmt.Errorf("%q is none of %s", r, strings.Join([]string{string(Reader), string(Writer),
			string(Collector)}, ", "))
	}
	return encode(s), nil
}

// BucketPolicy keeps writers, and thieves of their credentials, from overwriting what never changes, and
// heads otherwise than by compare-and-swap.
func (a Address) BucketPolicy() string {
	deny := func(sid string, keys []string, unless ...string) statement {
		missing := map[string]string{}
		for _, c := range unless {
			missing[c] = "true"
		}
		return statement{Sid: sid, Effect: "Deny", Principal: "*", Action: []string{"s3:PutObject"},
			Resource: keys, Condition: map[string]any{"Null": missing}}
	}
	return encode([]statement{
		deny("NeverOverwrite", a.arn("format", "d/*", "m/*", "t/*", "i/*"), "s3:if-none-match"),
		deny("CompareAndSwap", a.arn("heads/*"), "s3:if-none-match", "s3:if-match"),
	})
}
