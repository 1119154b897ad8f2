package ec2

import (
	"bytes"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/cloud/cloudtest"
	"github.com/nodeattest/nodeattest/cloud/internal/metadata"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/refusal"
)

// TestSource: the control plane reads the evidence of an instance, and STS answers for it.
func TestSource(t *testing.T) {
	l := newLab(t)
	server := l.cloud.Serve(machine("machine-0"))
	defer server.Close()
	server.Fail(http.StatusServiceUnavailable, 1)
	s := testkit.Must(NewSource(SourceOptions{URL: server.URL, Now: l.cloud.Now}))
	id, err := s.Machine(t.Context())
	if err != nil || id != "aws:aws/us-east-2/i-0123456789abcdef0" {
		t.Errorf("%s, %v", id, err)
	}
	before := len(server.Requests())
	data := testkit.Must(s.Document(t.Context(), testValue))
	if got, want := server.Requests()[before:], []string{"PUT /latest/api/token", "GET /latest/dynamic/instance-identity/rsa2048", "PUT /latest/api/token",
		"GET /latest/meta-data/iam/security-credentials/", "PUT /latest/api/token", "GET /latest/meta-data/iam/security-credentials/node"}; !slices.Equal(got, want) {
		t.Errorf("asked %q", got)
	}
	claims, err := l.platform(t, l.cloud).Verify(t.Context(), data, inquiry(testTime))
	if err != nil || claims.Machine != id || !bytes.Equal(claims.Value, testValue) {
		t.Errorf("%+v, %v", claims, err)
	}
}

// TestSourceRefusals: an error names the missing part of the machine, and no secret.
func TestSourceRefusals(t *testing.T) {
	for _, c := range []SourceOptions{{URL: "169.254.169.254"}, {Timeout: -1}} {
		if s, err := NewSource(c); !errors.Is(err, refusal.CheckConfig) || s != nil {
			t.Errorf("%+v: %v", c, err)
		}
	}
	if _, err := new(Source).Machine(t.Context()); !errors.Is(err, metadata.CheckMetadata) {
		t.Error(err)
	}
	l := newLab(t)
	without, elsewhere := machine("machine-0"), machine("machine-0")
	without.Role, elsewhere.Region = "", "eu-test-1"
	for name, c := range map[string]struct {
		machine cloudtest.EC2Machine
		value   []byte
		want    refusal.Check
		says    string
	}{
		"a short value":             {machine("machine-0"), testValue[1:], checkValue, "32 bytes"},
		"no role":                   {without, testValue, metadata.CheckMetadata, "attach an instance profile"},
		"a region without endpoint": {elsewhere, testValue, checkRegion, "eu-test-1"},
	} {
		t.Run(name, func(t *testing.T) {
			server := l.cloud.Serve(c.machine)
			defer server.Close()
			s := testkit.Must(NewSource(SourceOptions{URL: server.URL, Now: l.cloud.Now}))
			if data, err := s.Document(t.Context(), c.value); !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) || data != nil {
				t.Errorf("%q, %v", data, err)
			}
		})
	}
}

// TestCredentials: the metadata server's answers for credentials.
func TestCredentials(t *testing.T) {
	const good = `{"Code":"Success","Type":"AWS-HMAC","AccessKeyId":"ASIAEXAMPLE000000","SecretAccessKey":"verysecretkey","Token":"token+/=","Expiration":"2026-11-22T21:00:00Z"}`
	for name, c := range map[string]struct {
		role, answer string
		ok           bool
	}{
		"good":             {"node\n", good, true},
		"a role of two":    {"node\nadmin", good, false},
		"a path":           {"../../user-data", good, false},
		"a long name":      {strings.Repeat("a", 67), good, false},
		"a page":           {"<html>", good, false},
		"no role":          {"", good, false},
		"that failed":      {"node", strings.Replace(good, "Success", "AssumeRoleUnauthorizedAccess", 1), false},
		"without a secret": {"node", strings.Replace(good, "SecretAccessKey", "Secret", 1), false},
		"with one twice":   {"node", strings.Replace(good, `"Code"`, `"Token":"verysecretkey","Code"`, 1), false},
		"no JSON":          {"node", "verysecretkey", false},
		"long":             {"node", good + strings.Repeat(" ", maxCredentials), false},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch r.URL.Path {
				case "/latest/api/token":
					_, _ = w.Write([]byte("token"))
				case credentialsPath:
					_, _ = w.Write([]byte(c.role))
				case credentialsPath + "node":
					_, _ = w.Write([]byte(c.answer))
				default:
					t.Errorf("asked for %s", r.URL.Path)
				}
			}))
			defer server.Close()
			s := testkit.Must(NewSource(SourceOptions{URL: server.URL, Timeout: 5 * time.Second}))
			got, err := s.credentials(t.Context())
			if (err == nil) != c.ok || c.ok != (got.SecretAccessKey == "verysecretkey") || err != nil && (!errors.Is(err, metadata.CheckMetadata) || strings.Contains(err.Error(), "verysecret")) {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestSignWithBadCredentials: a request that the control plane would refuse is not filed.
func TestSignWithBadCredentials(t *testing.T) {
	e := testkit.Must(endpointOf(testRegion))
	for name, change := range map[string]func(*known){
		"long-lived":      func(k *known) { k.SessionToken = "" },
		"a token in two":  func(k *known) { k.SessionToken = "a b" },
		"a key ID of one": func(k *known) { k.AccessKeyID = "A" },
	} {
		k := sessions()["instance"]
		change(&k)
		if _, err := sign(k.credentials(), e, testValue, testTime); !errors.Is(err, checkQuery) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
