// Package vectors has the test vectors of node attestation as data: one JSON file for each
// attack, made from good evidence by changing one thing, with the check that must refuse it,
// and good inputs, which must be accepted. README.md says how to read them in any language.
// This module requires no other.
package vectors

import "embed"

// FS has the vectors:
//
//	data/environment.json   the control plane that all vectors below data meet
//	data/CLASS/NAME.json    one vector: a JSON object as schema.json describes it
//	cloud/KIND/environment.json, cloud/KIND/NAME.json
//	                        the same of documents by clouds, as cloud/README.md describes them
//	schema.json             the JSON Schema of the files below data
//
// All bytes in them are base64 (RFC 4648, section 4). A vector whose member "expect" is the
// empty string must be accepted; any other must be refused, by the check of that name.
//
//go:embed data/*.json data/*/*.json cloud/*/*.json schema.json
var FS embed.FS
