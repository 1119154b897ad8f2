package apiclient

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"strings"
	"testing"

	certificatesv1 "k8s.io/api/certificates/v1"
	"k8s.io/client-go/rest"

	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/refusal"
)

// TestEcho: a server, or a proxy before it, repeats the request.
func TestEcho(t *testing.T) {
	t.Parallel()
	const password = "correct horse battery"
	basic := base64.StdEncoding.EncodeToString([]byte("user:" + password))
	for name, reply := range map[string]func(w http.ResponseWriter, header string){
		"a text": func(w http.ResponseWriter, header string) {
			w.Header().Set("Content-Type", "text/plain")
			w.WriteHeader(http.StatusBadGateway)
			fmt.Fprintf(w, "cannot forward Authorization: %s", header)
		},
		"a text that client-go cuts": func(w http.ResponseWriter, header string) {
			w.Header().Set("Content-Type", "text/plain")
			w.WriteHeader(http.StatusBadGateway)
			_, _ = w.Write([]byte(header[:len(header)-3] + "\n" + strings.Repeat(" ", 2040-len(header)) + header))
		},
		"a Status": func(w http.ResponseWriter, header string) {
			answer(w, http.StatusBadRequest, failure(http.StatusBadRequest, "bad header "+header))
		},
		"an object of another kind": func(w http.ResponseWriter, header string) {
			answer(w, http.StatusOK, map[string]string{"apiVersion": "v1", "kind": header})
		},
		"a version": func(w http.ResponseWriter, header string) {
			answer(w, http.StatusOK, map[string]string{"apiVersion": header, "kind": "CertificateSigningRequest"})
		},
		"a content type": func(w http.ResponseWriter, header string) {
			w.Header().Set("Content-Type", "application/"+header)
		},
		"no JSON": func(w http.ResponseWriter, header string) {
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"kind":` + header))
		},
		"a condition": func(w http.ResponseWriter, header string) {
			o := request("a")
			o.Status.Conditions = []certificatesv1.CertificateSigningRequestCondition{{Type: certificatesv1.CertificateDenied, Reason: header, Message: "it is " + header}}
			answer(w, http.StatusOK, o)
		},
		"an event": func(w http.ResponseWriter, header string) {
			w.Header().Set("Content-Type", "application/json")
			event(w, "ERROR", failure(http.StatusGone, header))
		},
		"an event of another kind": func(w http.ResponseWriter, header string) {
			w.Header().Set("Content-Type", "application/json")
			event(w, header, request("a"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newServer(t, func(w http.ResponseWriter, r *http.Request) { reply(w, r.Header.Get("Authorization")) })
			withPassword := s.config()
			withPassword.BearerToken, withPassword.Username, withPassword.Password = "", "user", password
			for _, config := range []*rest.Config{s.config(), withPassword} {
				c := connect(t, config, nil)
				_, created := c.Create(t.Context(), filed())
				got, read := c.get(t.Context(), request("a"))
				_, seen := watched(t, c, request("a"))
				_, whoFailed := c.WhoAmI(t.Context())
				for _, out := range []any{created, read, seen, whoFailed, got} {
					for _, leak := range testkit.SecretLeaks(out, []byte(testToken), []byte(basic), []byte(password)) {
						t.Error(leak)
					}
				}
				if refused := created != nil && read != nil; refused == (name == "a condition") {
					t.Errorf("got %v and %v", created, read)
				}
			}
		})
	}
}

// TestEchoOfProxy: the proxy's own password is one too.
func TestEchoOfProxy(t *testing.T) {
	t.Parallel()
	proxy := newServer(t, func(w http.ResponseWriter, r *http.Request) { t.Error("it was asked over TLS") })
	plain := http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		fmt.Fprintf(conn, "HTTP/1.1 407 no %s\r\nContent-Length: 0\r\n\r\n", r.Header.Get("Proxy-Authorization"))
		_ = conn.Close()
	})}
	listener := testkit.Must(net.Listen("tcp", "127.0.0.1:0"))
	go func() { _ = plain.Serve(listener) }()
	t.Cleanup(func() { _ = plain.Close() })
	config := proxy.config()
	config.Proxy = func(*http.Request) (*url.URL, error) {
		return url.Parse("http://user:" + testSecret + "@" + listener.Addr().String())
	}
	_, err := connect(t, config, nil).WhoAmI(t.Context())
	if !errors.Is(err, refusal.ErrRetry) || !strings.Contains(err.Error(), "(secret)") {
		t.Errorf("got %v", err)
	}
	for _, leak := range testkit.SecretLeaks(err, []byte(testSecret), []byte(base64.StdEncoding.EncodeToString([]byte("user:"+testSecret)))) {
		t.Error(leak)
	}
}

func TestRedact(t *testing.T) {
	t.Parallel()
	s := secretsOf(&rest.Config{BearerToken: testToken, Username: "u", Password: "short"})
	for in, want := range map[string]string{
		"":                                "",
		"nothing in it":                   "nothing in it",
		"the ID attest is public":         "the ID attest is public",
		"Bearer " + testToken + " is bad": "Bearer (secret) is bad",
		testToken + testToken:             "(secret)",
		testSecret + "!" + testSecret:     "(secret)!(secret)",
		"cut: " + testToken[:12]:          "cut: (secret)",
		"cut: " + testSecret[8:]:          "cut: (secret)",
		"cut: " + testSecret[9:]:          "cut: " + testSecret[9:],
		"a short one":                     "a (secret) one",
		"é" + testSecret + "\xff":         "é(secret)\xff",
	} {
		t.Run(in, func(t *testing.T) {
			if got := s.redact(in); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
	if got := s.redact(strings.Repeat("a", 2*maxRead)); len(got) != maxRead {
		t.Errorf("%d bytes", len(got))
	}
	zeros := secretsOf(&rest.Config{BearerToken: "AAAAAAAAAAAAAAAA"})
	if got := zeros.redact("AAAAAAAAAA"); got != "AAAAAAAAAA" { // which stands in challenges
		t.Errorf("got %q", got)
	}
}

func FuzzRedact(f *testing.F) {
	testkit.BeginFuzz(f)
	f.Add(testToken, "Bearer "+testToken)
	f.Add("short", "a short one")
	f.Add("abababababababab", "xabababababababababy")
	f.Fuzz(func(t *testing.T, credential, text string) {
		if strings.ContainsAny(credential, "()") || strings.Contains("(secret)", credential) {
			return // it looks like what stands in its place
		}
		s := secretsOf(&rest.Config{BearerToken: credential})
		got := s.redact(text)
		for part := range s.pieces {
			if strings.Contains(got, part) {
				t.Errorf("%q of %q is in %q", part, credential, got)
			}
		}
		if again := s.redact(got); again != got {
			t.Errorf("%q, then %q", got, again)
		}
	})
}

func TestWithoutPasswords(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`parse "http://user:hunter2@pro xy:1": invalid character " " in host name`: `parse "http://(secret)@pro xy:1": invalid character " " in host name`,
		"https://a:b/c@d:1, https://e:f@g":                                         "https://(secret)@g",
		"https://api.example: no":                                                  "https://api.example: no",
	} {
		t.Run(in, func(t *testing.T) {
			if got := WithoutPasswords(errors.New(in)).Error(); got != want {
				t.Errorf("got %q, want %q", got, want)
			}
		})
	}
	if err := WithoutPasswords(fmt.Errorf("x: %w", fs.ErrNotExist)); !errors.Is(err, fs.ErrNotExist) || WithoutPasswords(nil) != nil {
		t.Errorf("got %v", err)
	}
}
