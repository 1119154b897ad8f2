package main

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/nodeattest/nodeattest/attest"
	"github.com/nodeattest/nodeattest/csr"
)

// maxDepth bounds the nesting of JSON.
const maxDepth = 32

// showObject reads a CertificateSigningRequest object, with the request and the
// challenge in it, and holds it against csr.ParseRequest.
func showObject(t *tree, text []byte) {
	before := len(t.faults)
	showJSON(t, text, map[string]bool{"apiVersion": true, "kind": true, "metadata": true, "spec": true, "status": true}, map[string]func(string){
		".spec.request": func(v string) { t.showEncoded(v) },
		".status.certificate": func(v string) {
			evidence := t.parts // which the issued certificate is no part of
			t.showEncoded(v)
			t.parts = evidence
		},
	})
	if len(t.faults) != before {
		return
	}
	switch request, err := csr.ParseRequest(text); {
	case err != nil:
		t.fault("refused: " + err.Error())
	case len(request.Spec.Request) == 0:
		t.fault("no spec.request: this is no CertificateSigningRequest")
	}
}

// showEncoded shows the PEM that a member holds in base64.
func (t *tree) showEncoded(v string) {
	b, err := base64.StdEncoding.Strict().DecodeString(v)
	if err != nil {
		t.fault("not base64: " + err.Error())
	}
	showPEM(t, b)
}

// showJSON reads JSON and writes it as a tree. Members whose path is in shows are
// shown by that function instead. Of the outermost object only the members in known are
// shown, unless it is nil: an object of another kind, a Secret for example, stays dark.
func showJSON(t *tree, text []byte, known map[string]bool, shows map[string]func(string)) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	j := &jsonReader{t: t, d: d, known: known, shows: shows}
	j.value("object", "")
	if j.done {
		return
	}
	if _, err := d.Token(); err != io.EOF {
		j.stop("more than one JSON value")
	}
}

// A jsonReader writes JSON as it comes, up to the first fault.
type jsonReader struct {
	t     *tree
	d     *json.Decoder
	known map[string]bool
	shows map[string]func(string)
	done  bool
}

func (j *jsonReader) stop(why string) {
	if !j.done {
		j.done = true
		j.t.stop(int(j.d.InputOffset()), why)
	}
}

func (j *jsonReader) token() json.Token {
	token, err := j.d.Token()
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		j.stop(err.Error())
	}
	return token
}

// value reads one value. path has a dot before each member's name, and nothing for an
// element of a list.
func (j *jsonReader) value(name, path string) string {
	switch token := j.token().(type) {
	case json.Delim:
		if len(j.t.path) > maxDepth {
			j.stop(fmt.Sprintf("nested deeper than %d", maxDepth))
			return ""
		}
		if token == '{' {
			j.t.in(name, "", func() { j.object(path) })
		} else {
			j.t.in(name, "", func() { j.list(path) })
		}
	case string:
		if show := j.shows[path]; show != nil {
			j.t.in(name, sizeOf(len(token)), func() { show(token) })
		} else if path != ".status.conditions.message" {
			j.t.line(name, jsonText(token))
		}
		return token
	case json.Number:
		j.t.line(name, jsonText(token.String()))
	case bool:
		j.t.line(name, strconv.FormatBool(token))
	case nil:
		if !j.done {
			j.t.line(name, "null")
		}
	}
	return ""
}

func (j *jsonReader) object(path string) {
	seen := map[string]string{}
	for !j.done && j.d.More() {
		name, _ := j.token().(string)
		if j.done {
			break
		}
		if _, twice := seen[name]; twice {
			j.stop("member " + quotedTo(name, 80) + " twice")
			break
		}
		seen[name] = ""
		if path == ".metadata" && name == "managedFields" || path == "" && j.known != nil && !j.known[name] {
			j.skip(quotedName(name))
			continue
		}
		seen[name] = j.value(quotedName(name), path+"."+name)
	}
	if message, ok := seen["message"]; ok && path == ".status.conditions" {
		j.t.conditionMessage(seen["reason"], message)
	}
	if !j.done {
		j.token()
	}
}

func (j *jsonReader) list(path string) {
	for n := 1; !j.done && j.d.More(); n++ {
		j.value(strconv.Itoa(n), path)
	}
	if !j.done {
		j.token()
	}
}

// skip passes over one value.
func (j *jsonReader) skip(name string) {
	var raw json.RawMessage
	if err := j.d.Decode(&raw); err != nil {
		j.stop(err.Error())
		return
	}
	j.t.line(name, sizeOf(len(raw))+", not shown")
}

// conditionMessage writes a condition's message, which with one reason is a challenge.
// It comes last, because the reason may stand behind it.
func (t *tree) conditionMessage(reason, message string) {
	if reason != attest.ReasonChallenge {
		t.line("message", jsonText(message))
		return
	}
	t.in("message", strconv.Itoa(len(message))+" characters, a challenge", func() { t.showMessage(message) })
}

// showMessage reads a challenge as it stands in a condition's message.
func (t *tree) showMessage(message string) {
	der, err := attest.ParseChallengeMessage(message)
	if err != nil {
		t.fault("refused: " + err.Error())
		der = lenientBase64(message)
	}
	showChallenge(newReader(t, der, 0))
}

// quotedName writes a member's name as it is where it is a plain word.
func quotedName(name string) string {
	if name != "" && len(name) <= 200 && !strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r == ':' || r > '~' }) {
		return name
	}
	return quotedTo(name, 80)
}

// jsonText writes a text. A long one without a space is data, not prose.
func jsonText(s string) string {
	if len(s) > 200 && !strings.Contains(s, " ") {
		return quotedTo(s, 40)
	}
	return quotedTo(s, 2100) // csr.MaxMessageSize and some
}
