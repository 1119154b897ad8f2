package csr

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/nodeattest/nodeattest/refusal"
)

// CheckGKEIdentity: the block VM IDENTITY is one JSON object with the five members of
// GKEIdentity.
const CheckGKEIdentity Check = "gke-identity"

// maxGKEIdentity bounds the length in bytes of a VM IDENTITY. The real ones have about
// 150.
const maxGKEIdentity = 4 << 10

// GKEIdentity names a virtual machine as in the block VM IDENTITY of GKE's dialect
// (cloud-provider-gcp, pkg/nodeidentity). No field is zero in what [ParseGKE] returns.
type GKEIdentity struct {
	Zone string // member "zone", such as "us-central1-a"
	ID   uint64 // member "id": the instance's number
	Name string // member "name": the instance's name
	// ProjectNumber is the member "project_id", which is a number in spite of its name.
	ProjectNumber uint64
	// ProjectID is the member "project_name".
	ProjectID string
}

// parseGKEIdentity reads one JSON object in UTF-8. The five members must be there once,
// spelt exactly so; other members are passed over, unless their names differ from one of
// the five in case alone, which encoding/json would take for it. No object in it may have
// two members of one name.
func parseGKEIdentity(raw []byte) (GKEIdentity, error) {
	var id GKEIdentity
	if len(raw) > maxGKEIdentity {
		return id, gkeViolation(strconv.Itoa(len(raw))+" bytes", "at most "+strconv.Itoa(maxGKEIdentity))
	}
	if !utf8.Valid(raw) || !json.Valid(raw) {
		return id, gkeViolation(refusal.Quote(string(raw)), "one JSON object in UTF-8")
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	// Valid JSON has every token that is asked for from here on.
	if open, _ := d.Token(); open != json.Delim('{') {
		return id, gkeViolation(refusal.Quote(string(raw)), "a JSON object")
	}
	seen := map[string]bool{}
	for d.More() {
		name, err := memberName(d, seen)
		if err != nil {
			return id, err
		}
		if err := id.readMember(d, name); err != nil {
			return id, err
		}
	}
	if id.Zone == "" || id.ID == 0 || id.Name == "" || id.ProjectNumber == 0 || id.ProjectID == "" {
		return id, gkeViolation(refusal.Quote(string(raw)), "zone, id, name, project_id and project_name, none empty or zero")
	}
	return id, nil
}

// readMember reads the value of one member of the outer object.
func (id *GKEIdentity) readMember(d *json.Decoder, name string) error {
	switch name {
	case "zone":
		return readText(d, name, &id.Zone)
	case "name":
		return readText(d, name, &id.Name)
	case "project_name":
		return readText(d, name, &id.ProjectID)
	case "id":
		return readNumber(d, name, &id.ID)
	case "project_id":
		return readNumber(d, name, &id.ProjectNumber)
	}
	for _, known := range []string{"zone", "id", "name", "project_id", "project_name"} {
		if strings.EqualFold(name, known) {
			return gkeViolation("member "+refusal.Quote(name), known)
		}
	}
	return skipValue(d)
}

// memberName reads the name of a member and refuses one that was seen before.
func memberName(d *json.Decoder, seen map[string]bool) (string, error) {
	token, _ := d.Token()
	name, _ := token.(string) // in valid JSON there is nothing else
	if seen[name] {
		return "", gkeViolation("two members "+refusal.Quote(name), "one")
	}
	seen[name] = true
	return name, nil
}

func readText(d *json.Decoder, name string, out *string) error {
	token, _ := d.Token()
	text, ok := token.(string)
	// The decoder writes U+FFFD for escapes that are no character.
	if !ok || strings.ContainsRune(text, utf8.RuneError) {
		return gkeViolation("member "+name+" of another type", "a string")
	}
	*out = text
	return nil
}

func readNumber(d *json.Decoder, name string, out *uint64) error {
	token, _ := d.Token()
	if number, ok := token.(json.Number); ok {
		var err error
		if *out, err = strconv.ParseUint(number.String(), 10, 64); err == nil {
			return nil
		}
	}
	return gkeViolation("member "+name+" of another type", "a whole number of at most 64 bits")
}

// skipValue passes over one value and refuses objects in it that have two members of
// one name.
func skipValue(d *json.Decoder) error {
	var open []map[string]bool // the objects around the next token, nil for an array
	for {
		if n := len(open); n > 0 && open[n-1] != nil && d.More() {
			if _, err := memberName(d, open[n-1]); err != nil {
				return err
			}
		}
		switch token, _ := d.Token(); token {
		case json.Delim('{'):
			open = append(open, map[string]bool{})
		case json.Delim('['):
			open = append(open, nil)
		case json.Delim('}'), json.Delim(']'):
			open = open[:len(open)-1]
		}
		if len(open) == 0 {
			return nil
		}
	}
}

func gkeViolation(got, want string) error {
	return &Error{Check: CheckGKEIdentity, Got: got, Want: want}
}
