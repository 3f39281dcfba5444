"""The state file's schema, version by version.

A released script never changes: a new version is a new script.
"""

MIGRATIONS = (
    """
    CREATE TABLE classes (
        switch TEXT NOT NULL,
        name TEXT NOT NULL,
        class_index INTEGER NOT NULL CHECK (class_index > 0),
        spec TEXT NOT NULL,
        PRIMARY KEY (switch, name)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE flows (
        switch TEXT NOT NULL,
        name TEXT NOT NULL,
        private_index INTEGER CHECK (private_index > 0),
        spec TEXT NOT NULL,
        PRIMARY KEY (switch, name)
    ) STRICT, WITHOUT ROWID;
    """,
    """
    ALTER TABLE classes ADD COLUMN revision INTEGER NOT NULL DEFAULT 1;
    ALTER TABLE flows ADD COLUMN revision INTEGER NOT NULL DEFAULT 1;
    CREATE TABLE meters (
        switch TEXT NOT NULL,
        name TEXT NOT NULL,
        spec TEXT NOT NULL,
        revision INTEGER NOT NULL,
        PRIMARY KEY (switch, name)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE ports (
        switch TEXT NOT NULL,
        name TEXT NOT NULL,
        spec TEXT NOT NULL,
        revision INTEGER NOT NULL,
        PRIMARY KEY (switch, name)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE switches (
        name TEXT NOT NULL PRIMARY KEY,
        spec TEXT NOT NULL,
        revision INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE events (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        time TEXT NOT NULL,
        kind TEXT NOT NULL,
        switch TEXT,
        message TEXT NOT NULL,
        data TEXT NOT NULL
    ) STRICT;
    CREATE TABLE progress (revision INTEGER NOT NULL) STRICT;
    INSERT INTO progress VALUES (1);
    """,
    """
    ALTER TABLE progress ADD COLUMN epoch INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE progress ADD COLUMN sequence INTEGER NOT NULL DEFAULT 0;
    ALTER TABLE progress ADD COLUMN alone INTEGER NOT NULL DEFAULT 0;
    """,
    """
    ALTER TABLE progress DROP COLUMN sequence;
    ALTER TABLE progress DROP COLUMN alone;
    ALTER TABLE progress ADD COLUMN bids INTEGER NOT NULL DEFAULT 0;
    UPDATE progress SET epoch = 0;
    """,
)
"""One script per schema version; `PRAGMA user_version` says how many have run."""
