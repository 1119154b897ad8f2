package audit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/nodeattest/nodeattest/internal/testkit"
	"github.com/nodeattest/nodeattest/refusal"
)

// theft is a log in which a node asked for a pod's token, and a stranger used it.
func theft() []members {
	return []members{
		request(0, node, certificate),
		issue(1, tokenA, node, certificate),
		issue(1, tokenB, node, certificate), // of another pod
		request(2, account, tokenA, members{"sourceIPs": []string{"10.0.0.7"}, "userAgent": "cart/1"}),
		request(3, account, tokenA, members{"sourceIPs": []string{"203.0.113.9", "10.0.0.66"}, "userAgent": "curl/8", "responseStatus": members{"code": 403}}),
		request(4, "admin", "X509SHA256="+strings.Repeat("ab", 32)),
	}
}

func TestTrace(t *testing.T) {
	events := theft()
	c := traced(t, tokenA, logOf(events...))
	if got, want := ids(c), []string{tokenA, certificate}; !slices.Equal(got, want) {
		t.Fatalf("got %q, want %q", got, want)
	}
	at := func(minute int) time.Time { return noon.Add(time.Duration(minute) * time.Minute) }
	want := []Link{
		{CredentialID: tokenA, Issued: []Event{{AuditID: "issue-" + tokenA + node, Time: at(1), Username: node, CredentialID: certificate,
			SourceIPs: []string{"10.0.0.1"}, UserAgent: "kubelet/v1.36.3", Verb: "create", Resource: "serviceaccounts/token", Namespace: "shop", Name: "cart"}},
			Uses: Uses{Requests: 2, First: at(2), Last: at(3), Users: []string{account},
				SourceIPs: []string{"10.0.0.7", "10.0.0.66", "203.0.113.9"}, UserAgents: []string{"cart/1", "curl/8"}}},
		{CredentialID: certificate, Uses: Uses{Requests: 3, First: at(0), Last: at(1), Users: []string{node},
			SourceIPs: []string{"10.0.0.1"}, UserAgents: []string{"kubelet/v1.36.3"}}},
	}
	if !reflect.DeepEqual(c.Links, want) {
		t.Errorf("got\n%+v, want\n%+v", c.Links, want)
	}
	if want := (Coverage{Events: 6, First: at(0), Last: at(4)}); c.Logs != want {
		t.Errorf("got %+v, want %+v", c.Logs, want)
	}
	if name, err := c.Node(); name != "node-1" || err != nil {
		t.Errorf("got %q, %v", name, err)
	}
	// Of a certificate, its uses name the node.
	if name, err := traced(t, certificate, logOf(events...)).Node(); name != "node-1" || err != nil {
		t.Errorf("from the certificate: got %q, %v", name, err)
	}
}

// Lines may come in any order, in several files, in lists, and twice.
func TestTraceOrder(t *testing.T) {
	events := theft()
	want := traced(t, tokenA, logOf(events...))
	sorted := func(c *Chain) *Chain {
		for i := range c.Links {
			slices.Sort(c.Links[i].Uses.SourceIPs)
			slices.Sort(c.Links[i].Uses.UserAgents)
		}
		return c
	}
	sorted(want)
	reversed := slices.Clone(events)
	slices.Reverse(reversed)
	list := members{"kind": "EventList", "apiVersion": "audit.k8s.io/v1", "metadata": members{}, "items": events}
	for name, logs := range map[string][]Log{
		"reversed":     {logOf(reversed...)},
		"three files":  {logOf(events[3:]...), logOf(), logOf(events[:3]...)},
		"a list":       {textLog(line(list))},
		"no last line": {textLog(strings.TrimSuffix(content(t, logOf(events...)), "\n"))},
		"CRLF, blanks": {textLog("\n" + strings.ReplaceAll(content(t, logOf(events...)), "\n", "\r\n\r\n"))},
	} {
		t.Run(name, func(t *testing.T) {
			if got := sorted(traced(t, tokenA, logs...)); !reflect.DeepEqual(got, want) {
				t.Errorf("got\n%+v, want\n%+v", got, want)
			}
		})
	}
	twice := traced(t, tokenA, logOf(events...), logOf(events...))
	if len(twice.Links[0].Issued) != 1 || twice.Links[0].Uses.Requests != 4 {
		t.Errorf("an event that is there twice: %+v", twice.Links[0])
	}
	if _, err := twice.Node(); err != nil {
		t.Error(err)
	}
}

func content(t testing.TB, l Log) string {
	t.Helper()
	return string(testkit.Must(io.ReadAll(testkit.Must(l.Open()))))
}

// A token may be requested with a token, and so on.
func TestTraceAlongAccounts(t *testing.T) {
	c := traced(t, tokenC, logOf(issue(3, tokenC, account, tokenB), issue(2, tokenB, account, tokenA), issue(1, tokenA, node, certificate)))
	if got, want := ids(c), []string{tokenC, tokenB, tokenA, certificate}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if name, err := c.Node(); name != "node-1" || err != nil {
		t.Errorf("got %q, %v", name, err)
	}
}

// TestTraceReadsAsOften: the log is read once for each link.
func TestTraceReadsAsOften(t *testing.T) {
	log, opened, closed := logOf(theft()...), 0, 0
	open := log.Open
	log.Open = func() (io.ReadCloser, error) {
		opened++
		r, err := open()
		return closer{r, func() error { closed++; return nil }}, err
	}
	traced(t, tokenA, log)
	if opened != 2 || closed != 2 {
		t.Errorf("opened %d times, closed %d times, want 2", opened, closed)
	}
}

type closer struct {
	io.Reader
	close func() error
}

func (c closer) Close() error { return c.close() }

func TestTraceCredentialIDs(t *testing.T) {
	log := logOf(theft()...)
	for _, id := range []string{"", "3e61a579-7bca-4b01-b07b-41db21f511e0", "JTI=", "jti=x", "JTI=" + strings.Repeat("x", 1001), "X509SHA256=", "X509SHA256=ab",
		strings.TrimPrefix(certificate, "X509SHA256="), strings.ToUpper(certificate), certificate + "00", "X509SHA256=" + certificate} {
		_, err := Trace(t.Context(), id, log)
		wantCheck(t, err, checkCredentialID)
	}
	for _, id := range []string{"JTI=x", "JTI=" + strings.Repeat("x", 1000)} {
		if _, err := Trace(t.Context(), id, log); err != nil {
			t.Error(err)
		}
	}
}

// IDs with characters that JSON escapes, or may escape, are found in either form.
func TestTraceEscapes(t *testing.T) {
	const id = `JTI=<"a"&\>é`
	for _, e := range []string{line(issue(0, id, node, certificate)), strings.ReplaceAll(strings.ReplaceAll(strings.ReplaceAll(line(issue(0, id, node, certificate)),
		`\u003c`, "<"), `\u003e`, ">"), `\u0026`, "&"), strings.ReplaceAll(line(issue(0, id, node, certificate)), "X509SHA256=28", `X509\u0053HA256=\u0032\u0038`)} {
		c := traced(t, id, textLog(e))
		if len(c.Links) != 2 || c.Links[1].Uses.Requests != 1 {
			t.Errorf("%s: got %+v", e, c)
		}
	}
}

func TestTraceReading(t *testing.T) {
	good := logOf(theft()...)
	broken := errors.New("the disk is gone")
	for name, row := range map[string]struct {
		log  Log
		want error
	}{
		"no file":        {Log{Name: "b.log", Open: func() (io.ReadCloser, error) { return nil, fs.ErrNotExist }}, fs.ErrNotExist},
		"a failing file": {Log{Name: "b.log", Open: func() (io.ReadCloser, error) { return io.NopCloser(iotest.ErrReader(broken)), nil }}, broken},
		"a failing close": {Log{Name: "b.log", Open: func() (io.ReadCloser, error) {
			return closer{strings.NewReader(""), func() error { return broken }}, nil
		}}, broken},
		"an error once": {Log{Name: "b.log", Open: func() (io.ReadCloser, error) {
			return io.NopCloser(iotest.TimeoutReader(strings.NewReader("{"))), nil
		}}, iotest.ErrTimeout},
		"no function": {Log{Name: "b.log"}, refusal.CheckConfig},
		"no reader":   {Log{Name: "b.log", Open: func() (io.ReadCloser, error) { return nil, nil }}, refusal.CheckConfig},
		"in a line": {Log{Name: "b.log", Open: func() (io.ReadCloser, error) {
			return io.NopCloser(io.MultiReader(strings.NewReader("{"), iotest.ErrReader(broken))), nil
		}}, broken},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Trace(t.Context(), tokenA, good, row.log)
			if !errors.Is(err, row.want) || !strings.HasPrefix(err.Error(), "audit log b.log: ") {
				t.Errorf("got %v, want %v of b.log", err, row.want)
			}
			if _, err := Changes(t.Context(), "uid", good, row.log); !errors.Is(err, row.want) {
				t.Errorf("Changes: got %v, want %v", err, row.want)
			}
		})
	}
	lies := Log{Name: "b.log", Open: func() (io.ReadCloser, error) { return io.NopCloser(liar{}), nil }}
	if _, err := Trace(t.Context(), tokenA, lies); err == nil || !strings.Contains(err.Error(), "audit log b.log: panic in ") {
		t.Errorf("a reader that has read more than it was given: got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Trace(ctx, tokenA, good); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	for _, none := range [][]Log{nil, {logOf()}, {textLog("{}\nno JSON\n")}} {
		_, err := Trace(t.Context(), tokenA, none...)
		wantCheck(t, err, checkLog)
	}
}

type liar struct{}

func (liar) Read(b []byte) (int, error) { return len(b) + 1, nil }

// TestForwardedAddresses: a client that names addresses in X-Forwarded-For does not hide its own, which
// kube-apiserver adds last.
func TestForwardedAddresses(t *testing.T) {
	forwarded := make([]string, 40)
	for i := range forwarded {
		forwarded[i] = fmt.Sprintf("10.0.1.%d", i)
	}
	from := members{"sourceIPs": append(forwarded, "203.0.113.9")}
	c := traced(t, tokenA, logOf(issue(1, tokenA, node, certificate, from), request(2, account, tokenA, from)))
	issued, uses := c.Links[0].Issued[0].SourceIPs, c.Links[0].Uses
	if len(issued) != maxTexts || issued[0] != "10.0.1.0" || issued[maxTexts-1] != "203.0.113.9" {
		t.Errorf("issued from %q", issued)
	}
	if uses.SourceIPs[0] != "203.0.113.9" || len(uses.SourceIPs) != maxTexts || !uses.More {
		t.Errorf("used from %q", uses.SourceIPs)
	}
	other := members{"sourceIPs": []string{"10.0.2.1", "10.0.0.1"}}
	uses = traced(t, tokenA, logOf(request(1, account, tokenA, other), request(2, account, tokenA, from))).Links[0].Uses
	if !slices.Equal(uses.SourceIPs[:4], []string{"10.0.0.1", "10.0.2.1", "203.0.113.9", "10.0.1.0"}) || !uses.More {
		t.Errorf("more %t, used from %q", uses.More, uses.SourceIPs)
	}
}

// TestLongRequest: a client cannot make the event of its request too long to be read. kube-apiserver takes
// 1 MiB of request line and headers, and writes six bytes for some of them.
func TestLongRequest(t *testing.T) {
	long := members{"requestURI": "/api/v1/secrets?" + strings.Repeat("&", http.DefaultMaxHeaderBytes)}
	c := traced(t, tokenA, logOf(issue(1, tokenA, node, certificate, long), request(2, account, tokenA, long)))
	if name, err := c.Node(); name != "node-1" || err != nil || c.Links[0].Uses.Requests != 1 || c.Logs.Unread != 0 {
		t.Errorf("got %q, %v: %+v", name, err, c.Logs)
	}
}

// TestUnread: lines that are no events, or too long or deep, are counted and not searched.
func TestUnread(t *testing.T) {
	whole := line(issue(1, tokenA, node, certificate))
	with := func(changes members) string { return line(issue(1, tokenA, node, certificate, changes)) }
	pad := func(n int) string { return with(members{"requestURI": strings.Repeat("x", n)}) }
	many := members{}
	for i := range 10001 {
		many[fmt.Sprint(i)] = 1
	}
	fill := maxLine - len(pad(0)) - 1 // with the line's end
	for name, row := range map[string]struct {
		line  string
		reads bool
	}{
		"an event":                   {whole, true},
		"unknown members":            {with(members{"future": members{"a": []int{1}}}), true},
		"the longest":                {pad(fill), true},
		"too long":                   {pad(fill + 1), false},
		"far too long":               {pad(3 * maxLine), false},
		"cut off":                    {whole[:len(whole)-1], false},
		"two on a line":              {whole + whole, false},
		"a member twice":             {strings.Replace(whole, `"annotations":`, `"annotations":{},"annotations":`, 1), false},
		"in two cases":               {strings.Replace(whole, `"annotations":`, `"Annotations":{},"annotations":`, 1), false},
		"too deep":                   {with(members{"future": deep(33)}), false},
		"deep":                       {with(members{"future": deep(32)}), true},
		"a deep request":             {with(members{"requestObject": deep(9999)}), true},
		"too deep a request":         {with(members{"requestObject": deep(10001)}), false},
		"a request in two cases":     {with(members{"requestObject": members{"a": 1, "A": 2}}), true},
		"a response with much":       {with(members{"responseObject": members{"a": many}}), true},
		"after a request":            {strings.Replace(whole, `"annotations":`, `"requestObject":{},"Annotations":{},"annotations":`, 1), false},
		"no JSON as a request":       {strings.Replace(whole, `"annotations":`, `"requestObject":{"a"},"annotations":`, 1), false},
		"not UTF-8":                  {strings.Replace(whole, "kubelet", "kubelet\xff", 1), false},
		"another version":            {with(members{"apiVersion": "audit.k8s.io/v1beta1"}), false},
		"another kind":               {with(members{"kind": "Policy"}), false},
		"no kind of event":           {`{"kind":"Policy","apiVersion":"audit.k8s.io/v1"}`, false},
		"the zero time":              {with(members{"stageTimestamp": "0001-01-01T00:00:00Z"}), false},
		"an event with a list":       {line(members{"kind": "EventList", "apiVersion": "audit.k8s.io/v1", "items": []members{issue(1, tokenA, node, certificate, members{"items": []members{}})}}), false},
		"without a stage":            {with(members{"stage": ""}), false},
		"without an ID":              {with(members{"auditID": ""}), false},
		"without a time":             {with(members{"stageTimestamp": nil}), false},
		"no time":                    {with(members{"stageTimestamp": "noon"}), false},
		"a list that is an event":    {with(members{"items": []members{issue(1, tokenA, node, certificate)}}), false},
		"an event that is a list":    {with(members{"kind": "EventList"}), false},
		"a list in a list":           {line(members{"kind": "EventList", "apiVersion": "audit.k8s.io/v1", "items": []members{{"items": []members{issue(1, tokenA, node, certificate)}}}}), false},
		"an incomplete event listed": {line(members{"kind": "EventList", "apiVersion": "audit.k8s.io/v1", "items": []members{issue(1, tokenA, node, certificate), {}}}), false},
		"1,000 events":               {list(1000), true},
		"1,001 events":               {list(1001), false},
		"a number for a text":        {with(members{"userAgent": 1}), false},
		"a text for a code":          {with(members{"responseStatus": members{"code": "201"}}), false},
		"an array":                   {"[" + whole + "]", false},
	} {
		t.Run(name, func(t *testing.T) {
			c := traced(t, tokenA, textLog(row.line+"\n"+line(request(0, "admin", tokenC))+"\n"))
			if reads := len(c.Links[0].Issued) == 1; reads != row.reads {
				t.Errorf("the line is read: %v", reads)
			}
			want := int64(1)
			if row.reads {
				want = 0
			}
			if c.Logs.Unread != want {
				t.Errorf("%d lines are unread", c.Logs.Unread)
			}
		})
	}
}

func deep(levels int) any {
	var v any = 1
	for range levels - 1 { // the event is the first
		v = []any{v}
	}
	return v
}

// list is an EventList with n events on one line, one of which issues the token.
func list(n int) string {
	events := []members{issue(1, tokenA, node, certificate)}
	for len(events) < n {
		events = append(events, members{"stage": "RequestReceived", "auditID": "x", "stageTimestamp": "2026-11-27T12:00:00Z"})
	}
	return line(members{"kind": "EventList", "apiVersion": "audit.k8s.io/v1", "items": events})
}

// TestIssues: each change to the event of a TokenRequest takes the token away from it.
func TestIssues(t *testing.T) {
	if c := traced(t, tokenA, logOf(issue(1, tokenA, node, certificate))); len(c.Links[0].Issued) != 1 {
		t.Fatalf("got %+v", c)
	}
	if c := traced(t, tokenA, logOf(issue(1, tokenA, node, certificate, members{"responseStatus": members{"code": 299}}))); len(c.Links[0].Issued) != 1 {
		t.Errorf("code 299: got %+v", c)
	}
	ref := func(key string, value any) members {
		r := members{"resource": "serviceaccounts", "subresource": "token", "namespace": "shop", "name": "cart"}
		r[key] = value
		return members{"objectRef": r}
	}
	for name, change := range map[string]members{
		"received":            {"stage": "RequestReceived"},
		"started":             {"stage": "ResponseStarted"},
		"panic":               {"stage": "Panic"},
		"refused":             {"responseStatus": members{"code": 403}},
		"redirected":          {"responseStatus": members{"code": 300}},
		"continued":           {"responseStatus": members{"code": 199}},
		"without a status":    {"responseStatus": members{}},
		"read":                {"verb": "get"},
		"of another resource": ref("resource", "pods"),
		"of the account":      ref("subresource", ""),
		"of another token":    {"annotations": members{annotationIssuedID: tokenB}},
		"unnamed":             {"annotations": members{}},
		"another annotation":  {"annotations": members{"authentication.k8s.io/issued-credential-id": tokenA}},
	} {
		t.Run(name, func(t *testing.T) {
			c := traced(t, tokenA, logOf(issue(1, tokenA, node, certificate, change)))
			_, err := c.Node()
			wantCheck(t, err, checkNoEvent, "no TokenRequest that issued "+tokenA)
			if unnamed := c.Logs.Unnamed == 1; unnamed != (name == "unnamed" || name == "another annotation") {
				t.Errorf("%d TokenRequests without a token", c.Logs.Unnamed)
			}
		})
	}
}

// TestUsesAreBounded: of a credential with many users, addresses and agents the first are stored.
func TestUsesAreBounded(t *testing.T) {
	var events []members
	for i := range maxTexts + 1 {
		events = append(events, request(i, account, tokenA, members{"sourceIPs": []string{fmt.Sprint("10.0.0.", i)}}))
	}
	all := traced(t, tokenA, logOf(events[:maxTexts]...)).Links[0].Uses
	if len(all.SourceIPs) != maxTexts || all.More {
		t.Errorf("got %+v", all)
	}
	more := traced(t, tokenA, logOf(events...)).Links[0].Uses
	if !slices.Equal(more.SourceIPs, all.SourceIPs) || !more.More || more.Requests != maxTexts+1 {
		t.Errorf("got %+v", more)
	}
	long := request(0, account, tokenA, members{"userAgent": strings.Repeat("x", maxText+1), "sourceIPs": strings.Split(strings.Repeat("x", maxTexts+1), "")})
	if e := testkit.Must(parse([]byte(line(long))))[0]; len(e.UserAgent) != maxText || len(e.SourceIPs) != maxTexts {
		t.Errorf("%d bytes, %d addresses", len(e.UserAgent), len(e.SourceIPs))
	}
}

// Every stage is a sign of use; a request is counted once, when it ends.
func TestUsesOfStages(t *testing.T) {
	var events []members
	for i, stage := range []string{"ResponseComplete", "ResponseStarted", "RequestReceived", "Panic"} {
		events = append(events, request(i, account, tokenA, members{"stage": stage}))
	}
	slices.Reverse(events)
	u := traced(t, tokenA, logOf(events...)).Links[0].Uses
	if u.Requests != 2 || !u.First.Equal(noon) || !u.Last.Equal(noon.Add(3*time.Minute)) {
		t.Errorf("got %+v", u)
	}
}

func TestChanges(t *testing.T) {
	const uid = "0d8ad3a4-0b2a-4f02-8a01-06f6bd0a5a5f"
	approve := func(minute int, changes ...members) members {
		return request(minute, "system:serviceaccount:nodeattest-system:controller", tokenB, append([]members{{"verb": "update", "objectRef": members{
			"resource": "certificatesigningrequests", "subresource": "approval", "name": "csr-x7k2p", "uid": uid}}}, changes...)...)
	}
	log := logOf(approve(1), approve(2, members{"responseStatus": members{"code": 409}}), approve(3, members{"stage": "RequestReceived"}),
		approve(4, members{"objectRef": members{"resource": "nodes", "uid": "other", "name": uid}}))
	found := testkit.Must(Changes(t.Context(), uid, log))
	if len(found) != 1 || found[0].Name != "csr-x7k2p" || found[0].Resource != "certificatesigningrequests/approval" || !found[0].Time.Equal(noon.Add(time.Minute)) {
		t.Errorf("got %+v", found)
	}
	_, err := Changes(t.Context(), "", log)
	wantCheck(t, err, refusal.CheckConfig)
	_, err = Changes(t.Context(), uid)
	wantCheck(t, err, checkLog)
	for uid, want := range map[string]int{"other": 1, "none": 0} {
		if found := testkit.Must(Changes(t.Context(), uid, log)); len(found) != want {
			t.Errorf("%q: got %+v", uid, found)
		}
	}
	var many []members
	for i := range maxTexts + 1 {
		many = append(many, approve(i))
	}
	if found := testkit.Must(Changes(t.Context(), uid, logOf(many...))); len(found) != maxTexts {
		t.Errorf("%d events", len(found))
	}
}
