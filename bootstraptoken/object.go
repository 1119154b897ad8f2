package bootstraptoken

import (
	"strconv"
	"time"

	"github.com/nodeattest/nodeattest/refusal"
	"github.com/nodeattest/nodeattest/secret"
)

// Object is what this package needs to see of a Kubernetes Secret (core/v1): its name
// and its data.
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
	// Data is the Secret's data, values by key without base64, as client-go has it:
	// secret.New(s.Data). Nothing here changes it.
	Data secret.Value[map[string][]byte]
}

// String returns the namespace, name and type.
func (o Object) String() string {
	return "Secret " + describe([]byte(o.Name)) + " in " + describe([]byte(o.Namespace)) + " of type " + describe([]byte(o.Type))
}

// describe quotes a value for an error or a log. A whole token in the place of its ID, or
// a secret in the place of a name, is a mistake that people make: where as many letters
// and digits stand in a row as could be most of a secret, only the length is told.
func describe(value []byte) string {
	const mostInRow = 13 // "bootstrappers" has 13
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
	return refusal.Quote(string(value))
}
