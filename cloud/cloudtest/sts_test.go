package cloudtest_test

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/nodeattest/nodeattest/cloud/cloudtest"
	"github.com/nodeattest/nodeattest/cloud/ec2"
	"github.com/nodeattest/nodeattest/internal/testkit"
)

const valueHeader = "x-nodeattest-qualifying-data"

// signedRequest is the request that an instance signs, read from its evidence.
func signedRequest(t *testing.T, cloud *cloudtest.EC2) *http.Request {
	t.Helper()
	server := cloud.Serve(cloudtest.EC2Machine{AccountID: "123456789012", Region: "us-east-2", InstanceID: "i-0123456789abcdef0", Role: "node"})
	defer server.Close()
	source := testkit.Must(ec2.NewSource(ec2.SourceOptions{URL: server.URL, Now: cloud.Now}))
	evidence := testkit.Must(source.Document(t.Context(), make([]byte, 32)))
	url, _, _ := bytes.Cut(evidence[bytes.Index(evidence, []byte("https://sts.")):], []byte(valueHeader))
	r := testkit.Must(http.NewRequestWithContext(t.Context(), http.MethodGet, string(url)+valueHeader, nil))
	r.Header.Set(valueHeader, string(evidence[len(evidence)-64:]))
	return r
}

// The fake of STS accepts only requests that an instance signs for it, for 15 minutes.
func TestSTS(t *testing.T) {
	cloud := cloudtest.NewEC2(t, "us-east-2")
	now := time.Now().Truncate(time.Second)
	cloud.Now = func() time.Time { return now }
	request := signedRequest(t, cloud)
	query := func(old, by string) func(*http.Request) {
		return func(r *http.Request) { r.URL.RawQuery = strings.Replace(r.URL.RawQuery, old, by, 1) }
	}
	for name, row := range map[string]struct {
		change func(*http.Request)
		after  time.Duration
		code   string
	}{
		"as it is":               {func(*http.Request) {}, 0, ""},
		"at a server":            {func(r *http.Request) { r.Host, r.URL.Host = r.URL.Host, "" }, 0, ""},
		"15 minutes later":       {func(*http.Request) {}, 15 * time.Minute, ""},
		"a second later":         {func(*http.Request) {}, 15*time.Minute + time.Second, "SignatureDoesNotMatch"},
		"tomorrow":               {func(*http.Request) {}, 24 * time.Hour, "ExpiredToken"},
		"another value":          {func(r *http.Request) { r.Header.Set(valueHeader, "00") }, 0, "SignatureDoesNotMatch"},
		"another method":         {func(r *http.Request) { r.Method = http.MethodHead }, 0, "SignatureDoesNotMatch"},
		"another region's host":  {func(r *http.Request) { r.Host = "sts.us-west-2.amazonaws.com" }, 0, "SignatureDoesNotMatch"},
		"another service's host": {func(r *http.Request) { r.Host = "ec2.us-east-2.amazonaws.com" }, 0, "InvalidAction"},
		"another path":           {func(r *http.Request) { r.URL.Path = "/x" }, 0, "InvalidAction"},
		"another action":         {query("GetCallerIdentity", "GetSessionToken"), 0, "InvalidAction"},
		"another token":          {query("Token=", "Token=AAAA"), 0, "InvalidClientTokenId"},
		"without a date":         {query("Date=", "Day="), 0, "IncompleteSignature"},
		"another parameter":      {query("&Version", "&x=y&Version"), 0, "SignatureDoesNotMatch"},
		"without the host":       {query("host%3B", ""), 0, "SignatureDoesNotMatch"},
	} {
		t.Run(name, func(t *testing.T) {
			r := request.Clone(t.Context())
			row.change(r)
			later := *cloud
			later.Now = func() time.Time { return now.Add(row.after) }
			answer := testkit.Must(later.RoundTrip(r))
			want := "<Code>" + row.code + "</Code>"
			if row.code == "" {
				want = "<Arn>arn:aws:sts::123456789012:assumed-role/node/i-0123456789abcdef0</Arn>"
			}
			body, err := io.ReadAll(answer.Body)
			if err != nil || (answer.StatusCode == http.StatusOK) != (row.code == "") || !strings.Contains(string(body), want) {
				t.Errorf("%d, %s, %v", answer.StatusCode, body, err)
			}
		})
	}
}
