// Package strictjson reads JSON (RFC 8259) that every reader must interpret identically:
// tokens, keys and documents that carry signatures. It refuses what other readers disagree
// about: a duplicate member name in one object, two names that differ only in case
// (encoding/json takes one for the other), text that is not UTF-8, lone surrogates, bytes
// after the value. Whatever it accepts, encoding/json reads with the same values.
//
// A [Reader] reads its bytes once, from left to right, and allocates nothing for strings
// without escapes:
//
//	r := strictjson.NewReader(data)
//	err := r.Object(func(name []byte) (err error) {
//		switch string(name) {
//		case "alg":
//			alg, err = r.String()
//		case "exp":
//			exp, err = r.Int64()
//		default:
//			err = r.Skip()
//		}
//		return err
//	})
//	if err == nil {
//		err = r.End()
//	}
//
// Callers limit the size of the input. Time and memory are linear in that size.
package strictjson
