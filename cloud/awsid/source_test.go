package awsid_test

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/cloud/awsid"
	"github.com/nodeattest/nodeattest/cloud/internal/metadata"
	"github.com/nodeattest/nodeattest/refusal"
)

func TestSource(t *testing.T) {
	server := ec2(t).Serve(machine())
	defer server.Close()
	server.Fail(http.StatusServiceUnavailable, 1)
	s, err := awsid.NewSource(awsid.SourceOptions{URL: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	data, err := s.Document(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if d, err := awsid.Verify(data, ec2(t).Certificates(), now); err != nil || d.InstanceID != machine().InstanceID {
		t.Errorf("%+v, %v", d, err)
	}
	if got, want := server.Requests(), []string{"PUT /latest/api/token", "PUT /latest/api/token", "GET /latest/dynamic/instance-identity/rsa2048"}; !slices.Equal(got, want) {
		t.Errorf("got %q", got)
	}
}

func TestSourceRefusals(t *testing.T) {
	for _, c := range []awsid.SourceOptions{{URL: "169.254.169.254"}, {Timeout: -1}} {
		if s, err := awsid.NewSource(c); !errors.Is(err, refusal.CheckConfig) || s != nil {
			t.Errorf("%+v: %v", c, err)
		}
	}
	for name, c := range map[string]struct {
		body   string
		status int
		want   refusal.Check
	}{
		"no base64":     {"<html>", 200, refusal.Check("awsid-encoding")},
		"nothing":       {"", 200, refusal.Check("awsid-encoding")},
		"version 1":     {"", 401, metadata.CheckMetadata},
		"a huge answer": {strings.Repeat("A", 2*awsid.MaxSize+1), 200, metadata.CheckMetadata},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method == http.MethodPut {
					io.WriteString(w, "token")
					return
				}
				if r.Header.Get("X-aws-ec2-metadata-token") != "token" {
					t.Error("no token")
				}
				w.WriteHeader(c.status)
				io.WriteString(w, c.body)
			}))
			defer server.Close()
			s, err := awsid.NewSource(awsid.SourceOptions{URL: server.URL, Timeout: time.Second})
			if err != nil {
				t.Fatal(err)
			}
			if data, err := s.Document(t.Context()); !errors.Is(err, c.want) || data != nil {
				t.Errorf("%q, %v", data, err)
			}
		})
	}
}

func TestParseBase64(t *testing.T) {
	for text, want := range map[string]string{"TUk=": "MI", "TU\nk=\n": "MI", "TUk": "", "TUk=\r\n": "MI", "TU\r\nk=": "MI", "TUk=\r": "", "TU\rk=": "", "TUk=\r\r\n": "", "TUl=": "", "TUk=TUk=": "", "": "", "\n": ""} {
		t.Run(text, func(t *testing.T) {
			got, err := awsid.ParseBase64([]byte(text))
			if string(got) != want || (err == nil) != (want != "") || err != nil && !errors.Is(err, refusal.Check("awsid-encoding")) {
				t.Errorf("%q: %q, %v", text, got, err)
			}
		})
	}
	longest := append([]byte("TUk="), bytes.Repeat([]byte("\n"), 2*awsid.MaxSize-4)...)
	if got, err := awsid.ParseBase64(longest); err != nil || string(got) != "MI" {
		t.Errorf("as long as can be: %q, %v", got, err)
	}
	for _, text := range [][]byte{append(longest, '\n'), bytes.Repeat([]byte("A"), 1<<20)} {
		if _, err := awsid.ParseBase64(text); !errors.Is(err, refusal.Check("awsid-size")) {
			t.Errorf("%d bytes: %v", len(text), err)
		}
	}
}
