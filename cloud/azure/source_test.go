package azure

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/cloud/cloudtest"
	"github.com/nodeattest/nodeattest/cloud/internal/metadata"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/refusal"
)

// testSource asks a server, and waits by a clock that it moves on itself.
func testSource(t *testing.T, url string, sleep func(time.Duration) error) *Source {
	t.Helper()
	return testkit.Must(NewSource(SourceOptions{URL: url, Sleep: func(_ context.Context, d time.Duration) error { return sleep(d) }}))
}

var testValue = bytes.Repeat([]byte{0x5a}, 32)

// The node asks for itself and for documents, and for nothing else.
func TestSource(t *testing.T) {
	cloud := cloudtest.NewAzure(t, cloudtest.AzureOptions{})
	server := cloud.Serve(machine("1"))
	defer server.Close()
	s := testSource(t, server.URL, func(time.Duration) error { t.Error("waited"); return nil })
	id, err := s.Machine(context.Background())
	if err != nil || id != "azure:"+testSubscription+"/b1310a36-d400-46f6-82cb-6217df846581" {
		t.Errorf("machine %s, %v", id, err)
	}
	data := testkit.Must(s.Document(context.Background(), testValue))
	d, err := cloudVerifier(t, cloud).Verify(context.Background(), data, time.Now())
	if err != nil || d.Nonce != nonceOf(testValue) {
		t.Errorf("got %+v, %v", d, err)
	}
	requests := server.Requests()
	if len(requests) != 2 || requests[0] != "GET /metadata/instance/compute?api-version=2019-06-01&format=json" ||
		requests[1] != "GET /metadata/attested/document?api-version=2019-06-01&nonce="+d.Nonce {
		t.Errorf("asked %q", requests)
	}
	if _, err := s.Document(context.Background(), testValue[:16]); err != nil {
		t.Errorf("as short as can be: %v", err)
	}
	if _, err := s.Document(context.Background(), testValue[:15]); !errors.Is(err, checkNonce) {
		t.Errorf("a short value: %v", err)
	}
}

// A cloud or region may be years behind another, or have left the version that is asked for: then
// the oldest that it offers with the members that are read will do.
func TestSourceVersions(t *testing.T) {
	document := testkit.Must(testBench(t).document(newContent(testSubscription, testVM, nonceOf(testValue), time.Now())))
	reply := testkit.Must(json.Marshal(map[string]string{"encoding": "pkcs7", "signature": base64.StdEncoding.EncodeToString(document)}))
	for name, c := range map[string]struct {
		versions []string // newest first
		refusal  string   // of other versions; "" is as Azure's
		asked    []string
		want     string
	}{
		"all of them":       {[]string{"2025-04-07", "2021-02-01", "2019-06-01"}, "", []string{"2019-06-01"}, ""},
		"behind":            {[]string{"2019-11-01", "2019-08-15", "2019-06-01"}, "", []string{"2019-06-01"}, ""},
		"far behind":        {[]string{"2019-04-30", "2018-10-01", "2018-04-02"}, "", []string{"2019-06-01", "2019-04-30"}, ""},
		"far ahead":         {[]string{"2031-01-01", "2030-01-01", "2029-01-01"}, "", []string{"2019-06-01", "2029-01-01"}, ""},
		"too far behind":    {[]string{"2018-10-01", "2018-04-02", "2017-08-01"}, "", []string{"2019-06-01"}, `"2018-10-01"`},
		"a liar":            {nil, `{"newest-versions":["2030-01-01"]}`, []string{"2019-06-01", "2030-01-01"}, `"2030-01-01"`},
		"the same again":    {nil, `{"newest-versions":["2019-06-01"]}`, []string{"2019-06-01"}, `"2019-06-01"`},
		"no list":           {nil, `{"error":"Bad request"}`, []string{"2019-06-01"}, "Bad request"},
		"no date in a list": {nil, `{"newest-versions":["2030-01-01&nonce=x"]}`, []string{"2019-06-01"}, "status 400"},
	} {
		t.Run(name, func(t *testing.T) {
			var asked []string
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				version := r.URL.Query().Get("api-version")
				asked = append(asked, version)
				if slices.Contains(c.versions, version) {
					w.Write(reply)
					return
				}
				w.WriteHeader(http.StatusBadRequest)
				if c.refusal != "" {
					io.WriteString(w, c.refusal)
					return
				}
				json.NewEncoder(w).Encode(map[string]any{"newest-versions": c.versions,
					"error": "Bad request. api-version is invalid or was not specified in the request. For more information refer to aka.ms/azureimds"})
			}))
			defer server.Close()
			_, err := testSource(t, server.URL, nil).Document(t.Context(), testValue)
			if (err == nil) != (c.want == "") || err != nil && (!strings.Contains(err.Error(), c.want) || !errors.Is(err, metadata.CheckMetadata)) || !slices.Equal(asked, c.asked) {
				t.Errorf("asked for %q: %v", asked, err)
			}
		})
	}
}

// A service that is being moved or updated does not find its own paths for a moment, or says that
// it is gone.
func TestSourceNotFoundYet(t *testing.T) {
	for _, status := range []int{http.StatusNotFound, http.StatusGone, http.StatusTooManyRequests, http.StatusInternalServerError} {
		server := cloudtest.NewAzure(t, cloudtest.AzureOptions{}).Serve(machine("1"))
		defer server.Close()
		server.Fail(status, 1)
		if _, err := testSource(t, server.URL, nil).Machine(t.Context()); err != nil || len(server.Requests()) != 2 {
			t.Errorf("%d: %v after %q", status, err, server.Requests())
		}
		server.Fail(http.StatusForbidden, 1)
		if _, err := testSource(t, server.URL, nil).Machine(t.Context()); err == nil || errors.Is(err, refusal.ErrRetry) {
			t.Errorf("forbidden: %v", err)
		}
	}
}

// A document that the service kept from before is asked for again, less and less often, and
// is an error of its own in the end.
func TestCachedDocuments(t *testing.T) {
	now := time.Now()
	cloud := cloudtest.NewAzure(t, cloudtest.AzureOptions{})
	cloud.Now, cloud.Cached = func() time.Time { return now }, 6*time.Hour
	server := cloud.Serve(machine("1"))
	defer server.Close()
	var waits []time.Duration
	s := testSource(t, server.URL, func(d time.Duration) error { waits = append(waits, d); return nil })
	first, err := s.Document(context.Background(), testValue)
	if err != nil || len(waits) != 0 {
		t.Fatalf("first: %v after %v", err, waits)
	}
	another := bytes.Repeat([]byte{1}, 32)
	_, err = s.Document(context.Background(), another)
	if !errors.Is(err, checkCached) || !errors.Is(err, refusal.ErrRetry) {
		t.Errorf("cached: %v", err)
	}
	var whole time.Duration
	for n, d := range waits {
		whole += d
		if want := min(time.Second<<n, lastDelay); d != want {
			t.Errorf("wait %d: %s, want %s", n, d, want)
		}
	}
	if whole != 75*time.Second { // 1 + 2 + 4 + 8 + 4 × 15
		t.Errorf("waited %s", whole)
	}
	again, err := s.Document(context.Background(), testValue) // the cached one is over this nonce
	if err != nil || !bytes.Equal(again, first) {
		t.Errorf("for the nonce of the cached one: %v", err)
	}

	waits = nil // and once the service makes a new one
	s = testSource(t, server.URL, func(d time.Duration) error {
		if waits = append(waits, d); len(waits) == 3 {
			now = now.Add(6 * time.Hour)
		}
		return nil
	})
	if data, err := s.Document(context.Background(), another); err != nil || len(waits) != 3 {
		t.Errorf("%v after %v", err, waits)
	} else if d, err := parseInsecure(data); err != nil || d.Nonce != nonceOf(another) {
		t.Errorf("got %+v, %v", d, err)
	}

	now = now.Add(time.Hour)
	broken := errors.New("no more")
	ended := 0
	s = testSource(t, server.URL, func(time.Duration) error { ended++; return broken })
	if _, err := s.Document(context.Background(), testValue); !errors.Is(err, checkCached) || ended != 1 {
		t.Errorf("a wait that ends: %v after %d", err, ended)
	}
}

// Answers that are not as documented are refused, and whether to try again is said.
func TestSourceAnswers(t *testing.T) {
	b := testBench(t)
	document := testkit.Must(b.document(newContent(testSubscription, testVM, nonceOf(testValue), time.Now())))
	encode := func(encoding string, data []byte) string {
		return string(testkit.Must(json.Marshal(map[string]string{"encoding": encoding, "signature": base64.StdEncoding.EncodeToString(data)})))
	}
	for name, c := range map[string]struct {
		machine, document string
		wantMachine       refusal.Check
		wantDocument      refusal.Check
	}{
		"good":                       {`{"vmId":"` + testVM + `","subscriptionId":"` + testSubscription + `","tagsList":[{"name":"a"}]}`, encode("pkcs7", document), "", ""},
		"nothing":                    {"", "", metadata.CheckMetadata, metadata.CheckMetadata},
		"no JSON":                    {"<html>", "<html>", metadata.CheckMetadata, metadata.CheckMetadata},
		"no machine":                 {"{}", "{}", attest.CheckIdentity, metadata.CheckMetadata},
		"another encoding":           {`{"vmId":7}`, encode("jws", document), metadata.CheckMetadata, metadata.CheckMetadata},
		"a document of one byte":     {`{"vmId":"a","subscriptionId":"b"}`, encode("pkcs7", []byte("x")), attest.CheckIdentity, metadata.CheckMetadata},
		"bytes behind":               {`{"vmId":"` + testVM + `","subscriptionId":"` + testSubscription + `"}x`, encode("pkcs7", document) + "x", metadata.CheckMetadata, metadata.CheckMetadata},
		"bytes behind the base64":    {"[]", strings.Replace(encode("pkcs7", document), `"}`, `!"}`, 1), metadata.CheckMetadata, metadata.CheckMetadata},
		"no base64":                  {"[]", `{"encoding":"pkcs7","signature":"!"}`, metadata.CheckMetadata, metadata.CheckMetadata},
		"an answer of two megabytes": {strings.Repeat(" ", 2<<20), strings.Repeat(" ", 2<<20), metadata.CheckMetadata, metadata.CheckMetadata},
	} {
		t.Run(name, func(t *testing.T) {
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if strings.HasPrefix(r.URL.Path, "/metadata/instance") {
					_, _ = w.Write([]byte(c.machine))
				} else {
					_, _ = w.Write([]byte(c.document))
				}
			}))
			defer server.Close()
			s := testSource(t, server.URL, func(time.Duration) error { return nil })
			for what, check := range map[string]refusal.Check{"machine": c.wantMachine, "document": c.wantDocument} {
				var err error
				if what == "machine" {
					_, err = s.Machine(context.Background())
				} else {
					_, err = s.Document(context.Background(), testValue)
				}
				if check == "" && err != nil || check != "" && !errors.Is(err, check) {
					t.Errorf("%s: %v, want %q", what, err, check)
				}
			}
		})
	}
}

// A service that is busy may answer later, and its text about itself is an answer.
func TestSourceRetries(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusGone) }))
	defer server.Close()
	s := testkit.Must(NewSource(SourceOptions{URL: server.URL, Timeout: 50 * time.Millisecond}))
	_, err1 := s.Machine(t.Context())
	_, err2 := s.Document(t.Context(), testValue)
	for _, err := range []error{err1, err2} {
		if !errors.Is(err, metadata.CheckMetadata) || !errors.Is(err, refusal.ErrRetry) {
			t.Error(err)
		}
	}
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"encoding":"jws"}`)) }))
	defer other.Close()
	_, err := testSource(t, other.URL, nil).Document(t.Context(), testValue)
	if e, ok := errors.AsType[*refusal.Error](err); !ok || e.Check != metadata.CheckMetadata || !strings.Contains(e.Got, "jws") {
		t.Errorf("another encoding: %v", err)
	}
}

// A whole join, through the metadata server.
func TestProver(t *testing.T) {
	cloud := cloudtest.NewAzure(t, cloudtest.AzureOptions{})
	server := cloud.Serve(machine("1"))
	defer server.Close()
	server.Fail(http.StatusTooManyRequests, 1)
	p := testkit.Must(NewProver(SourceOptions{URL: server.URL}))
	if p.Provider() != Provider {
		t.Errorf("provider %s", p.Provider())
	}
	err := p.Use(context.Background(), attest.StageHello, func(s attest.Session) error {
		presented, err := s.Present()
		if err == nil && presented.Machine.Kind() != identityKind {
			t.Errorf("presents %+v", presented)
		}
		return err
	})
	if err != nil || len(server.Requests()) != 2 {
		t.Errorf("%v, %q", err, server.Requests())
	}
}
