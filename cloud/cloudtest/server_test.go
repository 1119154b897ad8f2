package cloudtest_test

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/cloud/cloudtest"
	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/jws"
	"github.com/nodeattest/nodeattest/oid"
)

// ask asks a server; headers are names and values by turns.
func ask(t *testing.T, method, url string, headers ...string) (int, string, http.Header) {
	t.Helper()
	r := testkit.Must(http.NewRequestWithContext(t.Context(), method, url, nil))
	for i := 0; i < len(headers); i += 2 {
		r.Header.Set(headers[i], headers[i+1])
	}
	response := testkit.Must(http.DefaultClient.Do(r))
	defer response.Body.Close()
	body := testkit.Must(io.ReadAll(response.Body))
	return response.StatusCode, string(body), response.Header
}

func TestGCEServer(t *testing.T) {
	cloud := cloudtest.NewGCE(t)
	now := time.Unix(1_800_000_000, 0)
	cloud.Now = func() time.Time { return now }
	s := cloud.Serve(oid.GCEInstance{Zone: "europe-west1-b", ProjectNumber: 123, ProjectID: "p", InstanceID: 4711, InstanceName: "vm-1"})
	defer s.Close()
	const flavor, google = "Metadata-Flavor", "Google"
	root := s.URL + "/computeMetadata/v1/"
	for path, want := range map[string]string{"instance/id": "4711", "instance/name": "vm-1", "instance/zone": "projects/123/zones/europe-west1-b",
		"project/project-id": "p", "project/numeric-project-id": "123"} {
		t.Run(path, func(t *testing.T) {
			if status, got, header := ask(t, "GET", root+path, flavor, google); status != 200 || got != want || header.Get(flavor) != google {
				t.Errorf("%s: %d %q", path, status, got)
			}
		})
	}
	const identity = "instance/service-accounts/default/identity"
	for name, c := range map[string]struct {
		path    string
		headers []string
		want    int
	}{
		"no header":      {identity + "?audience=a", nil, 403},
		"another header": {identity + "?audience=a", []string{flavor, "google"}, 403},
		"a proxy":        {identity + "?audience=a", []string{flavor, google, "X-Forwarded-For", "192.0.2.1"}, 403},
		"no audience":    {identity, []string{flavor, google}, 400},
		"nothing there":  {"x", []string{flavor, google}, 404},
	} {
		t.Run(name, func(t *testing.T) {
			if status, _, _ := ask(t, "GET", root+c.path, c.headers...); status != c.want {
				t.Errorf("%s: %d", name, status)
			}
		})
	}
	for _, full := range []bool{true, false} {
		path := root + identity + "?audience=a%20b"
		if full {
			path += "&format=full"
		}
		_, token, _ := ask(t, "GET", path, flavor, google)
		keys := testkit.Must(jws.NewStaticKeySet(cloud.Keys()...))
		v := testkit.Must(jws.VerifySignature(t.Context(), token, keys))
		var claims struct {
			Aud    string
			Exp    int64
			Google any
		}
		if err := json.Unmarshal(v.Payload, &claims); err != nil || claims.Aud != "a b" || claims.Exp != now.Unix()+3600 || (claims.Google != nil) != full {
			t.Errorf("%s, %v", v.Payload, err)
		}
	}
}

func TestAzureServer(t *testing.T) {
	cloud := cloudtest.NewAzure(t, cloudtest.AzureOptions{Name: "metadata.example", Region: "r1"})
	if got, want := cloud.Leaf().DNSNames, []string{"metadata.example", "r1.metadata.example"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	now := time.Now()
	cloud.Now = func() time.Time { return now }
	s := cloud.Serve(cloudtest.AzureMachine{VMID: "B1", SubscriptionID: "8A"})
	defer s.Close()
	get := func(path string, headers ...string) (int, string) {
		status, body, _ := ask(t, "GET", s.URL+path, append(headers, "Metadata", "true")...)
		return status, body
	}
	const version = "?api-version=2025-04-07"
	if status, _, _ := ask(t, "GET", s.URL+"/metadata/attested/document"+version); status != 400 {
		t.Error("without the header:", status)
	}
	for path, want := range map[string]int{
		"/metadata/attested/document":                                                 400,
		"/metadata/attested/document" + version + "&nonce=1&nonce=2":                  400,
		"/metadata/attested/document" + version + "&nonce=" + strings.Repeat("1", 33): 400,
		"/metadata/attested/document" + version + "&nonce=" + strings.Repeat("1", 32): 200,
		"/metadata/instance" + version:                                                200,
		"/metadata/instance/compute/vmId" + version + "&format=text":                  200,
		"/metadata/instance/compute/vmId" + version:                                   404,
		"/metadata/instance/compute/else" + version + "&format=text":                  404,
	} {
		t.Run(path, func(t *testing.T) {
			if status, body := get(path); status != want {
				t.Errorf("%s: %d %s", path, status, body)
			}
		})
	}
	if status, _ := get("/metadata/instance"+version, "X-Forwarded-For", "192.0.2.1"); status != 403 {
		t.Error("through a proxy:", status)
	}
	if _, body := get("/metadata/instance/compute" + version); !strings.Contains(body, `"vmId":"B1"`) {
		t.Error(body)
	}
	document := func(nonce string) []byte {
		var reply struct{ Encoding, Signature string }
		_, body := get("/metadata/attested/document" + version + "&nonce=" + nonce)
		if err := json.Unmarshal([]byte(body), &reply); err != nil || reply.Encoding != "pkcs7" {
			t.Fatalf("%s, %v", body, err)
		}
		return testkit.Must(base64.StdEncoding.DecodeString(reply.Signature))
	}
	if first := document("one"); !bytes.Contains(first, []byte(`"nonce":"one"`)) || !bytes.Contains(first, []byte(`"vmId":"b1"`)) {
		t.Errorf("%q", first)
	}
	cloud.Cached = time.Hour
	if cached := document("two"); !bytes.Contains(cached, []byte(`"nonce":"one"`)) {
		t.Errorf("not cached: %q", cached)
	}
	now = now.Add(time.Hour)
	if later := document("two"); !bytes.Contains(later, []byte(`"nonce":"two"`)) {
		t.Errorf("cached: %q", later)
	}
}

func TestEC2Server(t *testing.T) {
	cloud := cloudtest.NewEC2(t, "us-gov-west-1")
	now := time.Now()
	cloud.Now = func() time.Time { return now }
	s := cloud.Serve(cloudtest.EC2Machine{AccountID: "123456789012", Region: "us-gov-west-1", InstanceID: "i-1", Pending: now})
	defer s.Close()
	const document = "/latest/dynamic/instance-identity/document"
	if status, _, _ := ask(t, "GET", s.URL+document); status != 401 {
		t.Error("version 1:", status)
	}
	const ttl = "X-aws-ec2-metadata-token-ttl-seconds"
	for _, seconds := range []string{"", "0", "21601", "x"} {
		if status, _, _ := ask(t, "PUT", s.URL+"/latest/api/token", ttl, seconds); status != 400 {
			t.Errorf("a token for %q seconds: %d", seconds, status)
		}
	}
	if status, _, _ := ask(t, "PUT", s.URL+"/latest/api/token", ttl, "60", "X-Forwarded-For", "192.0.2.1"); status != 403 {
		t.Error("through a proxy:", status)
	}
	status, token, header := ask(t, "PUT", s.URL+"/latest/api/token", ttl, "60")
	if status != 200 || len(token) != 64 || header.Get(ttl) != "60" {
		t.Fatal(status, token, header)
	}
	get := func(path string) (int, string) {
		status, body, _ := ask(t, "GET", s.URL+path, "X-aws-ec2-metadata-token", token)
		return status, body
	}
	for path, want := range map[string]string{"instance-id": "i-1", "placement/region": "us-gov-west-1", "placement/availability-zone": "us-gov-west-1a",
		"services/partition": "aws-us-gov"} {
		t.Run(path, func(t *testing.T) {
			if status, got := get("/latest/meta-data/" + path); status != 200 || got != want {
				t.Errorf("%s: %d %q", path, status, got)
			}
		})
	}
	status, first := get("/latest/dynamic/instance-identity/rsa2048")
	if _, again := get("/latest/dynamic/instance-identity/rsa2048"); status != 200 || first != again {
		t.Error("the document changes")
	}
	if status, got := get(document); status != 200 || !strings.Contains(got, `"instanceId" : "i-1"`) {
		t.Errorf("%d %s", status, got)
	}
	now = now.Add(time.Minute)
	if status, _ := get(document); status != 401 {
		t.Error("with an old token:", status)
	}
}

func TestServerFails(t *testing.T) {
	s := cloudtest.NewGCE(t).Serve(oid.GCEInstance{})
	defer s.Close()
	s.Fail(503, 2)
	for _, want := range []int{503, 503, 403} {
		if status, _, _ := ask(t, "GET", s.URL+"/a?b"); status != want {
			t.Errorf("%d, want %d", status, want)
		}
	}
	if got, want := s.Requests(), []string{"GET /a?b", "GET /a?b", "GET /a?b"}; !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
}
