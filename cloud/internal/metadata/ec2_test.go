package metadata_test

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/nodeattest/nodeattest/cloud/internal/metadata"
	"github.com/nodeattest/nodeattest/refusal"
)

// Another server answers in place of the metadata server. That is final, and the error says so.
func TestNoSessionToken(t *testing.T) {
	for name, c := range map[string]struct {
		token string
		good  bool
	}{
		"a token of Amazon EC2": {"AQAEAKU8Q0Rr-_x2Zc0JrMhFvLb0aWJ2N0yqWcUOvJ0dtVnYj0pHJg==", true},
		"a page":                {"<!DOCTYPE html>\n<html><body>Sign in to the network</body></html>\n", false},
		"a page in one line":    {"<html>", false},
		"a line end":            {"token\n", false},
		"nothing":               {"", false},
		"a NUL":                 {"token\x00", false},
		"letters of no ASCII":   {"t\u00f6ken", false},
	} {
		t.Run(name, func(t *testing.T) {
			var asked []string
			url := server(t, func(w http.ResponseWriter, r *http.Request) {
				if asked = append(asked, r.Method); r.Method == http.MethodPut {
					io.WriteString(w, c.token)
				}
			})
			_, err := client(t, url, 0).EC2(t.Context(), "/p", 10)
			if c.good && err == nil && len(asked) == 2 {
				return
			}
			if c.good || !errors.Is(err, metadata.CheckMetadata) || errors.Is(err, refusal.ErrRetry) || !strings.Contains(err.Error(), "want a session token") || !slices.Equal(asked, []string{"PUT"}) {
				t.Errorf("got %v after %q", err, asked)
			}
		})
	}
}

// No error shows a session token, or credentials that came with another status than 200.
func TestSecretsInErrors(t *testing.T) {
	const secret = "AQAEAKU8Q0Rr-_x2Zc0JrMhFvLb0aWJ2N0yqWcUOvJ0dtVnYj0pHJg=="
	for name, c := range map[string]struct {
		path   string
		status int
		text   string
	}{
		"a token and a line end":         {"/latest/api/token", 200, secret + "\n"},
		"a token, created":               {"/latest/api/token", 201, secret},
		"a token, forbidden":             {"/latest/api/token", 403, secret},
		"credentials of another":         {"/latest/meta-data/iam/security-credentials/role", 203, `{"Token":"` + secret + `"}`},
		"more credentials than expected": {"/latest/meta-data/iam/security-credentials/role", 200, secret + strings.Repeat(" ", 2000)},
	} {
		t.Run(name, func(t *testing.T) {
			url := server(t, func(w http.ResponseWriter, r *http.Request) {
				if r.URL.Path != c.path {
					io.WriteString(w, "token")
					return
				}
				w.WriteHeader(c.status)
				io.WriteString(w, c.text)
			})
			_, err := client(t, url, 0).EC2(t.Context(), "/latest/meta-data/iam/security-credentials/role", 1000)
			if !errors.Is(err, metadata.CheckMetadata) || strings.Contains(err.Error(), secret[:8]) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// A session that has ended since is begun again, once.
func TestSessionThatHasEnded(t *testing.T) {
	for refused, ok := range map[int]bool{0: true, 1: true, 2: false} {
		t.Run(strconv.Itoa(refused), func(t *testing.T) {
			sessions, left := 0, refused
			url := server(t, func(w http.ResponseWriter, r *http.Request) {
				switch {
				case r.Method == http.MethodPut:
					sessions++
					io.WriteString(w, strconv.Itoa(sessions))
				case r.Header.Get("X-aws-ec2-metadata-token") != strconv.Itoa(sessions):
					t.Error("an old token")
				case left > 0:
					left--
					w.WriteHeader(http.StatusUnauthorized)
				default:
					io.WriteString(w, "answer")
				}
			})
			got, err := client(t, url, 0).EC2(t.Context(), "/p", 10)
			if ok != (err == nil) || ok != (string(got) == "answer") || sessions != min(refused, 1)+1 {
				t.Errorf("got %q, %v in %d sessions", got, err, sessions)
			}
			if !ok && (errors.Is(err, refusal.ErrRetry) || !strings.Contains(err.Error(), "session token")) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// What nothing on the instance shows: its metadata options.
func TestMetadataOptions(t *testing.T) {
	for want, answer := range map[string]http.HandlerFunc{
		"hop limit":           func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		"enable its endpoint": func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) },
		"version 2":           func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) },
	} {
		ctx, url := once(t, answer)
		if _, err := client(t, url, 0).EC2(ctx, "/p", 10); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q in it", err, want)
		}
	}
}
