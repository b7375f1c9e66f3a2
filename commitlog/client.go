package commitlog

// What whoever speaks RocketMQ's client protocol needs to know of the format.

// TagHash is the hash of a tag that a consume queue's tags code holds: Java's
// String.hashCode of the UTF-8 text. Pure.
func TagHash(tag string) int32 { return javaHash(tag) }

// StoreHost is what the log writes into records as their store host.
func (l *Log) StoreHost() Host { return l.opts.StoreHost }

// FindProperty gives a property's value in a properties text, and whether it is
// there, by the rules of ParseProperties. Nothing is allocated. Pure.
func FindProperty(text, name string) (string, bool) { return findProperty(text, name) }

// NextProperty cuts the first property off a properties text. What is no
// property (without a name, a separator or a value) has an empty name; it is
// skipped by whoever reads. Nothing is allocated. Pure.
func NextProperty(text string) (name, value, rest string) {
	part, rest := cutProperty(text)
	name, value, ok := splitProperty(part)
	if !ok {
		return "", "", rest
	}
	return name, value, rest
}

// DueTimestamp is when a message that was stored at a time in milliseconds is due
// by its DELAY property, in milliseconds; ok is false if it has none above 0. Pure.
func DueTimestamp(properties string, storeTimestamp int64) (due int64, ok bool) {
	return dueTimestamp(properties, storeTimestamp)
}
