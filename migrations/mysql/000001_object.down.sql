DROP TABLE object
