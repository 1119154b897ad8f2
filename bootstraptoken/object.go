package bootstraptoken

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Object is what this package needs to see of a Kubernetes Secret (core/v1): its name
// and its data. It shows no value of its data to anybody by chance: fmt, log/slog and
// JSON give the names of the keys alone. The one way around it is an Object in a field
// that is not exported, which fmt prints without asking: hold it there by pointer.
type Object struct {
	// Namespace, Name, UID and ResourceVersion are those of the object's metadata. UID
	// and ResourceVersion may be empty; no check needs them, [Sweep] passes them on.
	Namespace       string
	Name            string
	UID             string
	ResourceVersion string
	// Deleted is the object's deletionTimestamp: nil unless the object is being deleted.
	Deleted *time.Time
	// Type is the Secret's type, for a token [SecretType].
	Type string
	// Data is the Secret's data, decoded: no base64.
	Data Data
}

// Data is the data of a Secret: values by key, without base64. Its values are shown by
// no verb of fmt, no log/slog handler and no JSON encoder.
type Data map[string][]byte

// String returns the names of the keys, sorted.
func (d Data) String() string {
	keys := make([]string, 0, len(d))
	for key := range d {
		keys = append(keys, strconv.Quote(key))
	}
	slices.Sort(keys)
	return "[" + strings.Join(keys, " ") + " " + redacted + "]"
}

// GoString returns what [Data.String] does.
func (d Data) GoString() string { return "bootstraptoken.Data" + d.String() }

// Format writes the names of the keys for every verb of fmt.
func (d Data) Format(s fmt.State, verb rune) { writeRedacted(s, verb, d) }

// LogValue gives log/slog the names of the keys.
func (d Data) LogValue() slog.Value { return slog.StringValue(d.String()) }

// MarshalJSON returns what [Data.String] does as a JSON string, so that no encoder
// writes a secret.
func (d Data) MarshalJSON() ([]byte, error) { return json.Marshal(d.String()) }

// String returns the namespace, name and type.
func (o Object) String() string {
	return "Secret " + describe([]byte(o.Name)) + " in " + describe([]byte(o.Namespace)) + " of type " + describe([]byte(o.Type))
}

// GoString returns what [Object.String] does, in a form that looks like Go.
func (o Object) GoString() string { return "bootstraptoken.Object(" + strconv.Quote(o.String()) + ")" }

// Format writes what [Object.String] returns for every verb of fmt.
func (o Object) Format(s fmt.State, verb rune) { writeRedacted(s, verb, o) }

// LogValue gives log/slog what [Object.String] returns.
func (o Object) LogValue() slog.Value { return slog.StringValue(o.String()) }

// describe quotes a value for an error or a log. A whole token in the place of its ID, or
// a secret in the place of a name, is a mistake that people make: where as many letters
// and digits stand in a row as could be most of a secret, only the length is told.
func describe(value []byte) string {
	const mostInRow, most = 13, 64 // "bootstrappers" has 13
	row := 0
	for _, c := range value {
		row++
		if letter := c | 0x20; (c < '0' || c > '9') && (letter < 'a' || letter > 'z') {
			row = 0
		}
		if row > mostInRow {
			return strconv.Itoa(len(value)) + " bytes"
		}
	}
	if len(value) > most {
		return strconv.Quote(string(value[:most])) + "..."
	}
	return strconv.Quote(string(value))
}
